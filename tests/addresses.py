"""What a browser would fetch for a page."""

from html.parser import HTMLParser


class Addresses(HTMLParser):
    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        self.found += [value for name, value in attrs if name in {"src", "href", "xlink:href", "data"}]


def addresses(html):
    parser = Addresses()
    parser.feed(html)
    return parser.found
