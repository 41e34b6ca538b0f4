# SPDX-License-Identifier: GPL-2.0-or-later
"""Starts a souk-web for a test, and reads its pages."""
import http.client
import os
import re
import socket
import subprocess
import urllib.parse

LIMIT = float(os.environ.get("SOUK_TEST_LIMIT", 40))


class Web:
    """A souk-web of this test's own, on a port of its own."""

    def __init__(self, market, *options, program="souk-web", **how):
        self.process = subprocess.Popen(
            ["/usr/bin/env", program, "--listen", "127.0.0.1:0", *options], env=market.env,
            stdout=subprocess.PIPE, text=True, **how)
        self.link = self.process.stdout.readline().strip()
        url = urllib.parse.urlparse(self.link)
        self.host, self.port, self.key = url.netloc, url.port, url.query
        self.cookie = {"Cookie": f"souk-{self.port}={self.key[4:]}"} if self.key else {}

    def ask(self, path, method="GET", body=None, **headers):
        """(status, headers, text)"""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT)
        headers = {"Host": self.host, **self.cookie, **headers}
        connection.request(method, path, body, {k: v for k, v in headers.items() if v})
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, answer.headers, text

    def page(self, path):
        status, headers, text = self.ask(path)
        assert status == 200, (path, status, text)
        assert "script-src 'self'" in headers["Content-Security-Policy"]
        return text

    def raw(self, *lines):
        """A connection on which this was sent."""
        sock = socket.create_connection(("127.0.0.1", self.port), timeout=LIMIT)
        if lines:
            sock.sendall("\r\n".join([*lines, "", ""]).encode())
        return sock

    def watch(self):
        cookie = [f"Cookie: {self.cookie['Cookie']}"] if self.cookie else []
        return self.raw("GET /events HTTP/1.1", f"Host: {self.host}", *cookie)

    def end(self):
        if self.process.poll() is None:
            self.process.terminate()
        return self.process.wait(LIMIT)


class Visitor:
    """A browser at a souk-web that takes orders."""

    def __init__(self, web):
        self.web, self.login = web, ""
        self.origin = f"http://{web.host}"

    def get(self, path):
        own = self.web.cookie.get("Cookie", "")
        return self.web.ask(path, Cookie="; ".join(c for c in (own, self.login) if c))

    def form_of(self, path):
        """Returns the address that the form of a page is sent to, and the key in it."""
        text = self.get(path)[2].split('<main', 1)[1]
        found = re.search(r'<form method="post" action="([^"]+)">.*?name="form" value="(\w+)"',
                          text)
        assert found, text
        return found[1], found[2]

    def post(self, path, fields, **headers):
        own = self.web.cookie.get("Cookie", "")
        headers = {"Origin": self.origin, "Content-Type": "application/x-www-form-urlencoded",
                   "Cookie": "; ".join(c for c in (own, self.login) if c), **headers}
        status, told, text = self.web.ask(path, "POST", urllib.parse.urlencode(fields), **headers)
        if cookie := told["Set-Cookie"]:
            self.cookie = cookie
            self.login = cookie.split(";")[0]
        return status, told, text

    def log_in(self, token):
        action, key = self.form_of("/login")
        return self.post(action, {"form": key, "token": token})

    def order(self, job, verb, **fields):
        """The answer to the question that is asked back."""
        action, key = self.form_of(f"/job/{job}/{verb}")
        assert action == f"/job/{job}/{verb}"
        return self.post(action, {"form": key, **fields})
