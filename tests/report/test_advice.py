"""Each rule speaks when it should, and is silent when it should be."""

from dataclasses import replace

import pytest

from bal.evaluation import Metrics
from bal.evaluation.findings import Alarm, Counts, Findings, OODFindings, Selective
from bal.report import advice
from bal.report.advice import Commands, advise

COMMANDS = Commands("d", "my_model:build", "photos/test")
ALARM = Alarm("all classes", -2.0, 1000, 0.037, 0.064, rows=2000, rejected=100, fewest=70, most=136)
METRICS = Metrics(0.1, 0.1, 0.95, 0.95, 0.95)
HEALTHY = Findings(
    detector="BAL",
    classes=("a", "b"),
    thresholds=(-2.0,),
    false_alarm=0.05,
    alarms=(ALARM,),
    known=Counts.of(2000, 1900, 0, 1800, 1760),
    by_predicted={"a": Counts.of(1000, 950), "b": Counts.of(1000, 950)},
    by_class={"a": Counts.of(1000, 950), "b": Counts.of(1000, 950)},
    oods={"noise": OODFindings(Counts.of(500, 50), METRICS)},
    selective={"BAL": Selective(0.02, {}), "max-softmax": Selective(0.03, {})},
    best_aurc=0.01,
    left_out={"the test data": 0, "noise": 0},
)


def alarm(**changes):
    return {"alarms": (replace(ALARM, **changes),)}


ODD_CLASS = {"a": Counts.of(1000, 910), "b": Counts.of(1000, 990)}  # 9 % and 1 % rejected
CASES = {
    "not_calibrated": (
        {"false_alarm": None, "alarms": ()},
        "rejects 5.0% of the test rows",
        "bal calibrate d --classifier my_model:build --data HELD-OUT --false-alarm 0.05",
    ),
    "too_many_alarms": (
        alarm(rejected=137),
        "137 of 2,000 rows (6.9%) of all classes are rejected, where 70 to 136",
        "bal calibrate d",
    ),
    "too_few_alarms": (alarm(rejected=69), "69 of 2,000 rows (3.5%)", "bal calibrate d"),
    "few_calibration_rows": (
        alarm(calibration_rows=100, high=0.099),
        "100 rows promise 5.0% on average, but this very calibration may reject up to 9.9%",
        "bal calibrate d",
    ),
    "uneven_class": (
        {"by_class": ODD_CLASS},
        "9.0% of the 1,000 rows of true class a are rejected, against 1.0% of the rest",
        "--false-alarm 0.05 --per-class",
    ),
    "ood_accepted": (
        {"oods": {"noise": OODFindings(Counts.of(500, 251), METRICS)}},
        "50.2% of 500 rows of noise pass, with an AUROC of 95.0%",
        "bal compare --classifier my_model:build --train TRAIN --test photos/test --ood noise=DATA",
    ),
    "no_safer": (
        {"known": Counts.of(2000, 1900, 0, 1800, 1710)},  # 90 % of both
        "90.00% of the accepted rows are right, 90.00% of all valid ones",
        "bal fit --classifier my_model:build --train TRAIN --detector max-softmax --out OTHER",
    ),
    "invalid_rows": (
        {"known": Counts.of(2000, 1890, 10, 1800, 1760), "left_out": {"noise": 3}},
        "10 of 2,000 rows of the test data are not finite; files of noise that could not be read: 3",
        "bal score d",
    ),
    "few_test_rows": (
        {"known": Counts.of(99, 94)},
        "99 valid ID rows tell the rejected share only to within 1.7% and 11.4%",
        "--test MORE",
    ),
    "no_ood": (
        {"oods": {}},
        "No OOD data was given",
        "bal report d --classifier my_model:build --test photos/test --ood NAME=DATA",
    ),
}
SILENT = {
    "not_calibrated": {},
    "too_many_alarms": alarm(rejected=136),
    "too_few_alarms": alarm(rejected=70),
    "few_calibration_rows": alarm(high=0.075),
    "uneven_class": {"by_class": {"a": Counts.of(100, 91), "b": Counts.of(100, 97)}},  # 9 % against 3 %, of few rows
    "ood_accepted": {"oods": {"noise": OODFindings(Counts.of(500, 250), METRICS)}},
    "no_safer": {"known": Counts.of(2000, 1900, 0, 1800, 1711)},
    "invalid_rows": {},
    "few_test_rows": {"known": Counts.of(100, 95)},
    "no_ood": {},
}


@pytest.mark.parametrize("rule", CASES)
def test_a_rule_names_its_number_and_a_command(rule):
    changes, words, command = CASES[rule]
    said = getattr(advice, rule)(replace(HEALTHY, **changes), COMMANDS)
    assert words in said.text
    assert command in said.command


@pytest.mark.parametrize("rule", SILENT)
def test_a_rule_is_silent_at_its_edge(rule):
    assert getattr(advice, rule)(replace(HEALTHY, **SILENT[rule]), COMMANDS) is None


def test_every_rule_is_tried():
    assert {rule.__name__ for rule in advice.RULES} == CASES.keys() == SILENT.keys()


def test_healthy_numbers_have_nothing_to_mend():
    assert [item.title for item in advise(HEALTHY, COMMANDS)] == ["Nothing to mend."]


def test_advice_comes_in_the_order_of_the_rules():
    sick = replace(HEALTHY, false_alarm=None, alarms=(), oods={}, known=Counts.of(50, 40))
    assert [item.title for item in advise(sick, COMMANDS)] == ["Not calibrated.", "Few test rows.", "Nothing is known of misses."]


def test_without_labels_the_predicted_class_is_judged():
    said = advice.uneven_class(replace(HEALTHY, by_class=None, by_predicted=ODD_CLASS), COMMANDS)
    assert "rows of predicted class a" in said.text


def test_a_class_with_its_own_threshold_is_not_told_to_have_one():
    said = advice.uneven_class(replace(HEALTHY, by_class=ODD_CLASS, thresholds=(-1.0, -2.0)), COMMANDS)
    assert "has its own threshold already" in said.text
    assert said.command == "bal fit --classifier my_model:build --train TRAIN --detector BAL --out d"


def test_twice_as_often_is_needed_even_of_a_million_rows():
    groups = {"a": Counts.of(10**6, 930_000), "b": Counts.of(10**6, 960_000)}  # 7 % against 4 %
    found = replace(HEALTHY, by_class=groups, known=Counts.of(2 * 10**6, 1_890_000))
    assert advice.uneven_class(found, COMMANDS) is None


def test_of_many_thresholds_the_worst_is_named():
    alarms = tuple(replace(ALARM, name=name, rejected=n) for name, n in (("a", 140), ("b", 300), ("c", 100)))
    said = advice.too_many_alarms(replace(HEALTHY, alarms=alarms), COMMANDS)
    assert "of b are rejected" in said.text
    assert "(and so for 1 more)" in said.text
    assert said.command.endswith("--per-class")


def test_the_rows_advised_bring_the_band_where_it_is_to_be():
    rows = advice.rows_for(0.05)
    assert advice.false_alarm_band(rows, 0.05)[1] < 0.077
    assert advice.false_alarm_band(rows // 2, 0.05)[1] > 0.08


def test_commands_are_quoted_for_the_shell():
    assert "'my detector'" in Commands("my detector").calibrate(0.05)
