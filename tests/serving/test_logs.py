import json
import logging
import sys

from bal.serving.logs import JsonLines, say, say_failure


def lines_of(caplog):
    return [json.loads(JsonLines().format(record)) for record in caplog.records]


def test_a_line_is_one_json_object(caplog):
    caplog.set_level(logging.INFO, "bal.serving")
    say("request", route="/v1/score", status=200, text="two\nlines")
    [line] = lines_of(caplog)
    assert (line["event"], line["level"], line["status"], line["text"]) == ("request", "info", 200, "two\nlines")
    assert line["time"].endswith("Z")
    assert "\n" not in JsonLines().format(caplog.records[0])


def test_an_error_is_told_by_type_and_place_since_its_words_may_hold_what_a_client_sent(caplog):
    try:
        raise ValueError("the secret of a client")
    except ValueError as error:
        say_failure("model failed", error, request_id="r")
        record = logging.LogRecord("uvicorn", logging.ERROR, __file__, 1, "it failed", (), sys.exc_info())
    [line] = lines_of(caplog)
    assert (line["error"], line["request_id"]) == ("ValueError", "r")
    assert "test_logs.py" in line["places"][0]
    assert "secret" not in json.dumps(line) + JsonLines().format(record)
