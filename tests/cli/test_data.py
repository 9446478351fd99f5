import json
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

from bal.data.catalog import CATALOG
from command import bal


def test_data_list_and_verify_tell_what_is_here(tmp_path):
    def data(*arguments):
        return bal("data", *arguments, BAL_DATA=str(tmp_path))

    listed = data("list")
    assert listed.returncode == 0
    assert "fashion-mnist" in listed.stdout
    assert "0 of 4" in listed.stdout
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz").write_bytes(b"x")
    verified = data("verify", "mnist")
    assert verified.returncode == 1
    assert f"other     {tmp_path}/mnist/t10k-labels-idx1-ubyte.gz" in verified.stdout
    assert verified.stdout.count("missing") == 3
    assert "did you mean 'mnist'" in data("verify", "mnits").stderr


def test_data_list_and_verify_print_json_for_machines(tmp_path):
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz").write_bytes(b"x")
    listed = json.loads(bal("data", "list", "--json", BAL_DATA=str(tmp_path)).stdout)
    assert [entry["name"] for entry in listed] == list(CATALOG)
    mnist = listed[0]
    assert (mnist["title"], mnist["classes"], mnist["shape"], mnist["parts"]) == ("MNIST", 10, [28, 28], ["train", "test"])
    assert mnist["folder"] == str(tmp_path / "mnist")
    assert set(mnist["files"]) - set(mnist["missing"]) == {"t10k-labels-idx1-ubyte.gz"}
    verified = bal("data", "verify", "mnist", "--json", BAL_DATA=str(tmp_path))
    assert verified.returncode == 1
    assert "4 files are missing or not the official ones" in verified.stderr
    said = json.loads(verified.stdout)["mnist"]
    assert said["folder"] == str(tmp_path / "mnist")
    assert said["files"]["t10k-labels-idx1-ubyte.gz"] == "other"
    assert list(said["files"].values()).count("missing") == 3


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def test_data_get_says_what_it_wants_where_it_cannot_fetch_it(tmp_path):
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=tmp_path)) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        result = bal("data", "get", "mnist", "--from", f"http://127.0.0.1:{server.server_port}", BAL_DATA=str(tmp_path / "root"))
        server.shutdown()
    said = " ".join(result.stderr.split())
    assert result.returncode == 1
    assert "train-images-idx3-ubyte.gz of MNIST was not fetched" in said
    assert "MD5 must be f68b3c2dcbeaaa9fbdd348bbdeb94873" in said
    assert "Traceback" not in said


def test_data_get_refuses_typos_and_shows_an_example():
    assert "did you mean 'mnist'" in bal("data", "get", "mnist", "mnits").stderr
    assert "at least one data set" in bal("data", "get").stderr
    assert "Example: BAL_DATA=/data bal data get" in bal("data", "get", "--help").stdout
