# SPDX-License-Identifier: GPL-2.0-or-later
"""Jobs and the market from Python, by libsouk (souk.h).

    import souk
    with souk.Souk() as market:
        job = market.submit(["./simulate", "--seed", "7"], price=40, budget=5)
        print(market.watch(job, timeout=3600)["exit"])

Money is given as a number or text and never through a float that a text would lose; answers are
dictionaries and lists (tools/common/replies.md says which keys). What fails raises souk.Error with
the reason in one line. SOUK_LIBRARY names the library (libsouk.so.0)."""
import ctypes
import json
import os

MAJOR = 0


class Error(Exception):
    pass


class _Terms(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("price", ctypes.c_char_p), ("budget", ctypes.c_char_p),
                ("memory_mb", ctypes.c_int64), ("cpus", ctypes.c_int32),
                ("finish_s", ctypes.c_double), ("name", ctypes.c_char_p),
                ("promise", ctypes.c_int), ("runtime_s", ctypes.c_double)]


def _library():
    lib = ctypes.CDLL(os.environ.get("SOUK_LIBRARY") or f"libsouk.so.{MAJOR}")
    handle, text, texts = ctypes.c_void_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_char_p)
    answer, terms = ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(_Terms)
    for name, result, arguments in (
            ("api_version", ctypes.c_int, []), ("open", handle, [text, text]),
            ("open_at", handle, [text, text]),
            ("close", None, [handle]), ("error", text, [handle]),
            ("free", None, [ctypes.c_void_p]),
            ("submit", ctypes.c_int, [handle, terms, texts, text, ctypes.c_size_t]),
            ("change", ctypes.c_int, [handle, text, terms]),
            ("cancel", ctypes.c_int, [handle, text]),
            ("quote", ctypes.c_int, [handle, terms, ctypes.c_double, answer]),
            ("job", ctypes.c_int, [handle, text, answer]),
            ("list", ctypes.c_int, [handle, texts, answer]),
            ("watch", ctypes.c_int, [handle, text, text, ctypes.c_int, answer]),
            ("ask", ctypes.c_int, [handle, text, texts, answer])):
        function = getattr(lib, "souk_" + name)
        function.restype, function.argtypes = result, arguments
    if lib.souk_api_version() >> 16 != MAJOR:
        raise Error(f"libsouk is of version {lib.souk_api_version() >> 16}, not {MAJOR}")
    return lib


def _texts(words):
    words = [os.fsencode(w) for w in words]
    return (ctypes.c_char_p * (len(words) + 1))(*words, None)


def _terms(price=None, budget=None, memory_mb=0, cpus=0, finish_s=0, name=None,
           promise=False, runtime_s=0):
    def text(value):
        return None if value is None else str(value).encode()
    return ctypes.byref(_Terms(ctypes.sizeof(_Terms), text(price), text(budget), memory_mb, cpus,
                               finish_s, text(name), promise, runtime_s))


class Souk:
    """A node's agentd, or with `market` and `cert` the market on another host, as an operator: as
    marketctl's --socket, --node, --market and --cert."""

    def __init__(self, socket=None, node=None, market=None, cert=None):
        if (socket or node) and (market or cert):
            raise Error("socket and node are of this host, market and cert of another one")
        self._lib = _library()
        open_it = self._lib.souk_open_at if market or cert else self._lib.souk_open
        words = (market, cert) if market or cert else (socket, node)
        self._handle = open_it(*(w and os.fsencode(w) for w in words))
        if not self._handle:
            raise MemoryError

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self._lib.souk_close(self._handle)
        self._handle = None

    def _do(self, name, *arguments):
        if not self._handle:
            raise Error("this market is closed")
        if getattr(self._lib, "souk_" + name)(self._handle, *arguments) != 0:
            raise Error(self._lib.souk_error(self._handle).decode())

    def _answer(self, name, *arguments):
        place = ctypes.c_void_p()
        self._do(name, *arguments, ctypes.byref(place))
        try:
            return json.loads(ctypes.string_at(place.value))
        finally:
            self._lib.souk_free(place)

    def submit(self, argv, price, **terms):
        """The id of a job with this process's environment and directory."""
        id = ctypes.create_string_buffer(64)
        self._do("submit", _terms(price=price, **terms), _texts(argv), id, len(id))
        return id.value.decode()

    def change(self, job, **terms):
        self._do("change", job.encode(), _terms(**terms))

    def cancel(self, job):
        self._do("cancel", job.encode())

    def quote(self, price, runtime_s=0, **terms):
        return self._answer("quote", _terms(price=price, **terms), runtime_s)

    def job(self, job):
        return self._answer("job", job.encode())

    def list(self, **filters):
        """list(state="live", user="ann", limit=20)"""
        return self._answer("list", _texts([f"{k}={v}" for k, v in filters.items()]))

    def watch(self, job, status=None, timeout=30):
        """The job when its status is another than `status` (None: when it is finished), or as it
        is after `timeout` seconds."""
        return self._answer("watch", job.encode(), status and status.encode(), int(timeout * 1000))

    def attach(self, job, stdin=None, stdout=1, stderr=2):
        """The job's exit status, when it has ended: meanwhile these descriptors (or files that have
        one) are its streams, None for none."""
        def number(stream):
            if stream is None:
                return -1
            return stream if isinstance(stream, int) else stream.fileno()
        status = ctypes.c_int()
        self._do("attach", job.encode(), number(stdin), number(stdout), number(stderr),
                 ctypes.byref(status))
        return status.value

    def ask(self, verb, *arguments):
        """Any question of marketctl."""
        return self._answer("ask", verb.encode(), _texts(map(str, arguments)))
