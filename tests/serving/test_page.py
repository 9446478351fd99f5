"""The page: what it may load, what it is told, and what it does in a real browser."""

import asyncio
import base64
import json
import re
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import httpx2
import numpy as np
import pytest
import uvicorn
from torch import nn

from addresses import addresses
from asking import client_of, encoded
from bal.backbones import Classifier, ClassifierTraining, train_classifier
from bal.data import load_sample
from bal.data.images import decode
from bal.detectors import BAL, make_detector
from bal.features import extract
from bal.seeding import make_generator
from bal.serving.app import make_app
from bal.serving.limits import Limits
from bal.serving.model import ServedModel
from bal.serving.page import SCRIPTS, digest, page_data, page_headers, static
from bal.serving.security import Guard
from bal.serving.server import listen
from bal.serving.service import Service

TOKEN = "a-token-of-enough-letters"  # noqa: S105
CHROMIUM = Path("/usr/bin/chromium")
HTML = {"headers": {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}}


def get(service, *requests, token=None):
    """Answers to GET of (path, options)."""

    async def scene():
        async with client_of(service, token) as client:
            return [await client.get(path, **options) for path, options in requests]

    return asyncio.run(scene())


def test_a_browser_sees_the_page_and_a_program_the_routes(make_service):
    page, anything, script = get(make_service(), ("/", HTML), ("/", {"headers": {"Accept": "*/*"}}), ("/static/page.js", {}))
    assert page.headers["content-type"].startswith("text/html")
    assert page.text == static("page.html")
    assert "POST /v1/score" in anything.json()["routes"]
    assert page.headers["vary"] == anything.headers["vary"] == "Accept"
    assert script.headers["content-type"].startswith("text/javascript")


def test_the_page_may_load_its_own_script_and_ask_its_own_server_and_nothing_else(make_service):
    [page] = get(make_service(), ("/", HTML))
    rules = dict(rule.split(" ", 1) for rule in page.headers["content-security-policy"].split("; "))
    style = re.search(r"<style>(.*?)</style>", page.text, re.DOTALL).group(1)
    assert rules.pop("style-src") == f"'sha256-{digest(style)}'"
    own = dict.fromkeys(("script-src", "connect-src"), "'self'") | {"img-src": "data:"}
    nothing = dict.fromkeys(("default-src", "base-uri", "form-action", "frame-ancestors"), "'none'")
    assert rules == own | nothing
    assert page.headers["referrer-policy"] == "no-referrer"
    assert page.headers["x-content-type-options"] == "nosniff"


def test_the_page_names_no_address_but_its_script():
    html, script = static("page.html"), "".join(map(static, SCRIPTS))
    assert addresses(html) == ["data:,", "static/page.js"]
    assert set(re.findall(r"https?:[^\s\"'`)]*", html + script)) == {"http://www.w3.org/2000/svg"}, "the name of SVG"
    assert " style=" not in html, "the policy lets no style in but the one with the hash"
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|localStorage|sessionStorage|cookie", script
    )
    assert page_headers("<style>a</style>")["Content-Security-Policy"].count("sha256-") == 1


def test_the_page_needs_no_token_and_what_it_shows_does(make_service):
    right = {"headers": {"Authorization": f"Bearer {TOKEN}"}}
    paths = [("/", HTML), ("/static/words.js", {}), ("/v1/page", {}), ("/v1/page", right), ("/static/page.html", right)]
    assert [answer.status_code for answer in get(make_service(), *paths, token=TOKEN)] == [200, 200, 401, 200, 404]


def test_the_page_is_told_what_it_shows(make_service, energy):
    [answer] = get(make_service(max_bytes=5000), ("/v1/page", {}))
    told = json.loads(answer.text, parse_constant=pytest.fail)
    assert (told["model"], told["detector"], told["classes"]) == ("tiny", "energy", ["left", "right", "low"])
    assert (told["threshold"], told["false_alarm"]) == (energy.threshold_.item(), 0.1)
    assert told["classifier"] == {"name": None, "fingerprint": energy.classifier_.fingerprint(), "classes": 3}
    assert (told["takes_images"], told["shape"], told["max_bytes"], told["log_probability"]) == (True, [1, 4, 4], 5000, False)
    assert (told["histogram"]["source"], told["histogram"]["rows"]) == ("calibration", 60)
    assert (told["map"], told["samples"]) == (None, [])


def test_without_calibration_the_histogram_is_that_of_the_training_scores(tiny_classifier, tiny_images):
    detector = make_detector("energy").fit(tiny_classifier, tiny_images, show_progress=False)
    told = page_data(ServedModel(detector), Limits())
    assert (told["histogram"]["source"], told["false_alarm"], told["classes"]) == ("training", None, None)


def test_an_image_is_answered_with_its_place_on_the_map_and_the_class_it_would_have_had(make_service, bal_detector):
    image = np.random.default_rng(0).integers(0, 256, (4, 4), np.uint8)

    async def scene():
        async with client_of(make_service(bal_detector)) as client:
            told = (await client.get("/v1/page")).json()
            return told, (await client.post("/v1/score", content=encoded(image))).json()

    told, said = asyncio.run(scene())
    assert len(told["map"]["centres"]) == 3
    assert len(said["map"]) == 2
    assert said["predicted"] in {0, 1, 2}
    assert said["label"] in {said["predicted"], -1}


# In a real browser


@pytest.fixture(scope="module")
def clothes():
    """BAL on a small network that knows the sample's clothes, calibrated."""
    sample, g = load_sample(), make_generator(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 10))
    train = tuple(part[:3000] for part in sample.train)
    train_classifier(network, train, ClassifierTraining(epochs=4, batch_size=64), generator=g, show_progress=False)
    detector = BAL().fit(Classifier(network), train, show_progress=False).calibrate(sample.test[0][:1000], false_alarm=0.05)
    detector.class_names_ = sample.classes
    return detector


@contextmanager
def running(detector, token=None, **limits):
    """A server in a thread of this process; its address."""
    service, listener = Service(ServedModel(detector, "clothes"), Limits(**limits)), listen("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(make_app(service, Guard(token)), ws="none", log_config=None))
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    until = time.monotonic() + 60
    while not server.started and time.monotonic() < until:  # a browser is refused before
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(30)


@pytest.fixture
def browse():
    """Opens a page of a width in Chromium; nothing may go wrong in it, and nobody else may be asked."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if not CHROMIUM.exists():
        pytest.skip(f"{CHROMIUM} is not installed")
    wrong, hosts, opened = [], set(), []
    with playwright.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=CHROMIUM)

        def visit(url, width=1200):
            page = browser.new_page(viewport={"width": width, "height": 800})
            page.set_default_timeout(20_000)
            page.on("pageerror", lambda error: wrong.append(str(error)))
            page.on("console", lambda line: wrong.append(line.text) if line.type in {"error", "warning"} else None)
            page.on("request", lambda request: hosts.add(request.url.split("/")[2]) if request.url.startswith("http") else None)
            page.on("filechooser", lambda _: None)  # told before any key: Chromium may see the key before a later wish
            page.goto(url)
            opened.append(url.split("/")[2])
            return page

        yield visit
        browser.close()
    told = "Failed to load resource: "  # Chromium's own note of a refusal
    assert [words for words in wrong if not words.startswith(told)] == []
    assert hosts == set(opened)


def first(detector, images, *, accepted):
    """An image that is accepted, or one that is not."""
    chosen = detector.predict(images).label >= 0
    return images[np.flatnonzero(chosen == accepted)[0]]


def upload(page, content, name="mine.png"):
    page.set_input_files("#file", {"name": name, "mimeType": "image/png", "buffer": content})


def answer_of(page, words):
    page.locator("#verdict .answer").get_by_text(words, exact=True).wait_for()
    return page.inner_text("#verdict")


def overflow(page):
    return page.evaluate("document.documentElement.scrollWidth - window.innerWidth")


DROP = """([bytes, name]) => {
    const data = new DataTransfer();
    data.items.add(new File([new Uint8Array(bytes)], name));
    document.getElementById("drop").dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
}"""


def test_a_picture_is_picked_by_keyboard_and_one_that_is_not_known_is_told_so(clothes, browse):
    sample = load_sample()
    with running(clothes) as url:
        page = browse(url)
        page.wait_for_selector("#samples button")
        pictures = page_data(ServedModel(clothes), Limits())["samples"]
        known = next(i for i, p in enumerate(pictures) if decided(clothes, p) >= 0)
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.id") == "file"
        assert page.evaluate("getComputedStyle(document.getElementById('drop')).outlineStyle") == "solid", "the focus is seen"
        with page.expect_file_chooser():
            page.keyboard.press("Enter")
        for _ in range(known + 1):
            page.keyboard.press("Tab")
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid", "the focus is seen"
        page.keyboard.press("Enter")
        name = sample.classes[decided(clothes, pictures[known])]
        assert "Accepted" in answer_of(page, name)
        assert page.get_attribute("#verdict", "aria-live") == "polite"
        details = page.inner_text("#details")
        assert all(word in details for word in ("confidence", "p1", "p2", "p-value"))
        assert "this image" in page.text_content("#histogram")
        assert page.get_attribute("#map svg", "aria-label").startswith("The means of 10 classes in two dimensions. This image")
        upload(page, encoded(first(clothes, sample.ood[0], accepted=False)))
        assert "Rejected" in answer_of(page, "Not something I know")
        assert page.locator("#decisions li").count() == 2
        assert "mine.png" in page.inner_text("#decisions li:first-child")
        page.click("#decisions li:nth-child(2) button")
        assert "Accepted" in answer_of(page, name), "an older decision is shown again"


NUMBERS = """() => Object.fromEntries([...document.querySelectorAll("#details .what")].map(
    (what) => [what.textContent, what.nextElementSibling.nextElementSibling.textContent]))"""
DRAWN = """() => {
    const all = (selector, ...names) =>
        [...document.querySelectorAll(selector)].map((shape) => names.map((name) => Number(shape.getAttribute(name))));
    const widths = Object.fromEntries(["histogram", "map"].map(
        (id) => [id, document.querySelector(`#${id} svg`).viewBox.baseVal]).map(([id, box]) => [id, [box.width, box.height]]));
    return {
        widths, needle: all("#histogram .needle", "x1", "x2"), cut: all("#histogram .cut", "x1", "x2"),
        dots: all("#map .class-dot", "cx", "cy"), ring: all("#map .ring", "cx", "cy"), known: all("#map .mark-known", "cx", "cy"),
    };
}"""


def printed(value):
    """A number from 0 to 1 as the page writes it."""
    if 0 < value < 0.001:
        digits, power = f"{value:.1e}".split("e")
        return f"{digits}\u00a0\u00d7\u00a010" + str(int(power)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    if 0.9995 < value < 1:
        return ">\u00a00.999"
    return f"{value:#.2g}" if value < 0.1 else f"{value:.3f}"


@pytest.mark.parametrize("accepted", [True, False])
def test_a_dropped_picture_is_shown_with_the_numbers_and_places_of_the_answer(clothes, browse, accepted):
    sample = load_sample()
    image = first(clothes, (sample.test if accepted else sample.ood)[0], accepted=accepted)
    with running(clothes) as url:
        with httpx2.Client(trust_env=False, timeout=60) as client:
            told, said = client.get(f"{url}/v1/page").json(), client.post(f"{url}/v1/score", content=encoded(image)).json()
        page = browse(url)
        page.wait_for_selector("#samples button")
        page.evaluate(DROP, [list(encoded(image)), "dropped.png"])
        words = answer_of(page, sample.classes[said["label"]] if accepted else "Not something I know")
        assert "dropped.png" in words
        numbers, drawn = page.evaluate(NUMBERS), page.evaluate(DRAWN)
    check_against_the_detector(said, clothes, image)
    shown = {"confidence": "confidence", "p1": "p1", "p2": "p2", "p_value": "p-value"}
    assert numbers == {name: printed(said[key]) for key, name in shown.items()}
    # The histogram: bins of equal widths on the screen, four pixels from each side
    edges, wide = told["histogram"]["edges"], drawn["widths"]["histogram"][0] - 8
    for shape, value in (("needle", said["score"]), ("cut", said["threshold"])):
        x = 4 + wide * np.interp(value, edges, np.linspace(0, 1, len(edges)))
        assert np.array(drawn[shape]) == pytest.approx(np.array([[x, x]]), abs=0.01)
    assert (drawn["needle"][0][0] >= drawn["cut"][0][0]) == accepted
    # The map: the image stands to the class means as the answer says
    centres = np.column_stack([told["map"]["centres"], np.ones(10)])
    to_screen = np.linalg.lstsq(centres, np.array(drawn["dots"]), rcond=None)[0]
    assert centres @ to_screen == pytest.approx(np.array(drawn["dots"]), abs=0.01)
    place = np.clip(np.array([*said["map"], 1.0]) @ to_screen, 8, np.array(drawn["widths"]["map"]) - 8)
    assert np.array(drawn["ring"]) == pytest.approx(place[None], abs=0.01)
    assert len(drawn["known"]) == accepted, "a disc if it is accepted, a cross if not"


def check_against_the_detector(said, detector, image):
    """The served answer is what the detector itself says."""
    answer, (p1,) = detector.predict(image[None]), softmax_of(detector, image)
    for name in ("confidence", "p_value", "score"):
        assert said[name] == pytest.approx(getattr(answer, name)[0], rel=1e-4), name
    assert (said["label"], said["threshold"]) == (answer.label[0], detector.threshold_.item())
    assert said["p1"] == pytest.approx(p1, rel=1e-4)
    assert said["p1"] * said["p2"] == pytest.approx(answer.confidence[0], rel=1e-4)


def softmax_of(detector, image):
    """The largest probability of the classifier."""
    features = extract(detector.classifier_, image[None], spec=detector.spec_, show_progress=False)
    return features.logits.double().softmax(1).amax(1).tolist()


def decided(detector, picture):
    """The label of a picture of the sample."""
    image = decode(base64.b64decode(picture["address"].split(",")[1]), channels=1, name="x")
    return detector.predict(image[None]).label[0]


def test_what_cannot_be_answered_is_said_in_words_on_a_narrow_screen(clothes, browse):
    with running(clothes, max_bytes=20_000, max_pixels=10_000) as url:
        page = browse(url, width=360)
        page.wait_for_selector("#samples button")
        assert overflow(page) == 0
        whole = encoded(np.zeros((28, 28), np.uint8))
        page.evaluate(DROP, [list(b"no image at all"), "notes.txt"])
        assert "not an image that can be read" in answer_of(page, "No answer")
        assert "PNG, JPEG or WebP" in page.inner_text("#verdict")
        for content, words in [
            (whole[:50], "This image cannot be used."),
            (bytes(20_001), "It has 21 KB, and the server takes 20 KB at most."),
            (encoded(np.zeros((200, 200), np.uint8)), "The image is too large."),
        ]:
            upload(page, content)
            page.get_by_text(words).wait_for()
        busy = {"error": "too many are waiting; try again later", "code": "overloaded", "request_id": "x"}
        page.route("**/v1/score", lambda route: route.fulfill(status=503, json=busy))
        upload(page, whole)
        page.get_by_text("The server is busy or about to stop. Too many are waiting; try again later.").wait_for()
        page.unroute("**/v1/score")
        page.route("**/v1/score", lambda route: route.abort())
        upload(page, whole)
        page.get_by_text("The server cannot be reached.").wait_for()
        page.unroute("**/v1/score")
        assert page.locator("#decisions li").count() == 0
        noise = np.random.default_rng(0).integers(0, 256, (28, 28), np.uint8)
        upload(page, encoded(noise), "a-rather-long-name-of-a-file-without-any-space-in-it-" * 3 + ".png")
        page.wait_for_selector("#decisions li")
        assert overflow(page) == 0


def test_the_token_is_asked_for_and_kept_nowhere(clothes, browse):
    with running(clothes, token=TOKEN) as url:
        page = browse(url)
        page.wait_for_selector("#token")
        assert page.get_attribute("#token", "type") == "password"
        assert page.is_hidden("#content")
        page.keyboard.type("not the right one")
        page.keyboard.press("Enter")
        page.get_by_text("without spaces").wait_for()
        for given, selector in (("not-the-right-one", "text=That is not the right token."), (TOKEN, "#samples button")):
            page.fill("#token", given)
            page.keyboard.press("Enter")
            page.wait_for_selector(selector)
        page.locator("#samples button").first.click()
        page.wait_for_selector("#decisions li")
        assert page.evaluate("[localStorage.length, sessionStorage.length, document.cookie]") == [0, 0, ""]
        assert TOKEN not in page.content()
        page.reload()
        page.wait_for_selector("#token:focus")
