// SPDX-License-Identifier: GPL-2.0-or-later
#include "tests/unit/doctored_image.hpp"

#include <cstdlib>

#include "tests/unit/unit.hpp"

namespace souk::unit {
namespace {

// Makes each process of an image the user's, and renames a file (images/core.proto, creds.proto,
// fdinfo.proto, regfile.proto of CRIU). Arguments: the image's directory, a name, what it becomes.
constexpr const char* editor = R"(import glob, struct, sys
def number(n):
    out = b''
    while n > 127: out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])
def take(data, at):
    n = shift = 0
    while True:
        n |= (data[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 128: return n, at
def fields(data):
    at = 0
    while at < len(data):
        key, at = take(data, at)
        if key & 7 == 0: value, at = take(data, at)
        else:
            size, at = take(data, at) if key & 7 == 2 else ({1: 8, 5: 4}[key & 7], at)
            value, at = data[at:at + size], at + size
        yield key, value
def message(all):
    size = {0: number, 2: lambda v: number(len(v)) + v}
    return b''.join(number(k) + size.get(k & 7, bytes)(v) for k, v in all)
def within(data, tag, change):
    return message([(k, change(v) if k == tag << 3 | 2 else v) for k, v in fields(data)])
def creds(data):
    ids = [(k, 4321 if k >> 3 <= 8 else v) for k, v in fields(data) if k >> 3 <= 8]
    none = [(k, 0 if k & 7 == 0 else bytes(len(v))) for k, v in fields(data)
            if k >> 3 in (9, 10, 11, 12, 19)]
    return message(ids + none + [(13 << 3, 0), (18 << 3, 1)])
def rename(data):
    old, new = sys.argv[2].encode(), sys.argv[3].encode()
    reg = list(fields(data))
    if (6 << 3 | 2, old) not in reg: return data
    return message([(k, new if v == old else v) for k, v in reg if k >> 3 < 8])
for name in glob.glob(sys.argv[1] + '/core-*.img'):
    data = open(name, 'rb').read()
    new = within(data[12:], 5, lambda thread: within(thread, 10, creds))
    open(name, 'wb').write(data[:8] + struct.pack('<I', len(new)) + new)
if len(sys.argv) > 2:
    data = open(sys.argv[1] + '/files.img', 'rb').read()
    new, at = data[:8], 8
    while at < len(data):
        size, = struct.unpack_from('<I', data, at)
        entry = within(data[at + 4:at + 4 + size], 3, rename)
        new, at = new + struct.pack('<I', len(entry)) + entry, at + 4 + size
    open(sys.argv[1] + '/files.img', 'wb').write(new)
)";

}  // namespace

void freeze_as_users(const std::string& script, JobOutput& output, const TempDir& images,
                     const std::string& names) {
    const TempDir tools;
    tools.write("edit.py", editor);
    CapsuleRig rig(output);
    rig.start(python("import ctypes, os, select, socket, struct, sys, threading, time\n" + script));
    ck_assert_msg(rig.until([&] { return output.text[0].ends_with("ready\n"); }), "%s",
                  output.text[1].c_str());
    const std::string why = freeze(rig, images.fd.get());
    ck_assert_msg(why.empty(), "%s", why.c_str());
    const std::string edit = "/usr/bin/python3 " + tools.path + "/edit.py " + images.path + names;
    ck_assert_int_eq(std::system(edit.c_str()), 0);
}

}  // namespace souk::unit
