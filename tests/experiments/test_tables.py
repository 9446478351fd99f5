"""The specs hang together, and their printed values agree with what the paper's text says of them."""

import pytest

from bal.detectors import DETECTORS
from bal.experiments.networks import FEATURE_SIZES, find_network
from bal.experiments.tables import TABLE1, TABLE2, TABLE2_METHODS, TABLE3, TABLE4, TABLE5, TABLES, metrics_shown

PRESETS = ("cpu", "paper")


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", TABLES)
def test_every_line_can_be_measured_and_is_said_once(name, preset):
    table = TABLES[name](preset)
    assert table.name == name
    assert table.version >= 1
    places = [(line.block, line.label) for line in table.lines]
    assert len(places) == len(set(places))
    for line in table.lines:
        assert find_network(line.cell.network).recipe(preset)
        assert set(line.paper) <= set(table.metrics)
        assert all(0 <= value <= 100 for value in line.paper.values())
        assert line.cell.oods == (line.ood,)
        assert find_network(line.cell.network).data not in line.ood.split("+"), "a data set cannot be ID and OOD at once"


@pytest.mark.parametrize("name", ["table1", "table2"])
def test_all_detectors_but_one_are_in_every_block(name):
    table = TABLES[name]("cpu")
    for block in table.blocks:
        assert {line.label for line in table.lines if line.block == block} == {*DETECTORS, "BAL before training"} - {"VOS"}


def test_the_papers_preset_caps_nothing():
    for make in TABLES.values():
        assert all(line.cell.train_rows is line.cell.test_rows is None for line in make("paper").lines)
        assert not any(line.cell.network.endswith("/features") for line in make("paper").lines)


def test_cells_do_not_depend_on_the_table_they_stand_in():
    full = next(line for line in TABLES["table3"]("cpu").lines if line.label == "BAL, L_t + L_s + L_u")
    same = next(line for line in TABLES["table4"]("cpu").lines if line.label == "lambda_c = 0.7")
    assert full.cell.file_name("cpu") == same.cell.file_name("cpu")


def test_table_2_has_all_18_pairs_of_the_paper_and_the_thin_resnets():
    printed = [(network, ood) for network, oods in TABLE2.items() for ood, columns in oods.items() if columns]
    assert len(printed) == 18
    assert len(TABLES["table2"]("cpu").blocks) == 18 + 4
    for network, ood in printed:
        assert [len(column) for column in TABLE2[network][ood]] == [5, 5, 5]


def test_what_the_text_of_the_paper_says_of_its_tables():
    def gain(method, pairs):
        index = TABLE2_METHODS.index(method)
        return max(columns[0][index] - columns[0][-1] for columns in pairs)

    pairs = [columns for oods in TABLE2.values() for columns in oods.values() if columns]
    assert round(gain("Generalized ODIN", pairs), 1) == 13.9, "Sec. 5.5: a decline of FPR95 up to 13.9 %"
    assert round(TABLE1["fashion-mnist"]["ODIN"][2] - TABLE1["fashion-mnist"]["BAL"][2], 1) == 24.1
    assert round(TABLE3[""][3] - TABLE3["tsu"][3], 1) == 36.1, "Sec. 5.4: FPR95 up to 36.1 % below max-softmax"
    assert max(TABLE4, key=lambda value: TABLE4[value][0]) == 0.7
    assert all(u >= g for u, g in zip(TABLE5["uniform"], TABLE5["gaussian"], strict=True))
    assert TABLE4[0.7] == (TABLE3["tsu"][2], TABLE3["tsu"][0], TABLE3["tsu"][1]), "Tables 3 and 4 share a column"
    fpr, in_, out = (column[-1] for column in TABLE2["densenet-cifar10"]["tiny-imagenet"])
    assert (in_, out, fpr) == (TABLE3["tsu"][0], TABLE3["tsu"][1], TABLE3["tsu"][3]), "and Table 2"


def test_table_5_has_every_size():
    labels = [line.label for line in TABLES["table5"]("cpu").lines]
    own = [f"{sampler}, {size}" for sampler in ("gaussian", "uniform") for size in FEATURE_SIZES]
    assert labels == own + [f"from nothing, {label}" for label in own]


def test_the_papers_metrics_come_first():
    shown = metrics_shown(TABLES["table2"]("cpu"))
    assert shown[:3] == ("fpr95", "aupr_in", "aupr_out")
    assert set(shown) == {"fpr95", "aupr_in", "aupr_out", "auroc", "detection_error"}
