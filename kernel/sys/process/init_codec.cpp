// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/process/init_codec.hpp"

#include <cstring>

#include "kernel/base/check.hpp"
#include "kernel/sys/process/init_spec.hpp"

namespace souk {
namespace {
template <class T>
void append(std::string& out, const T& v) {
    out.append(reinterpret_cast<const char*>(&v), sizeof v);
}

template <class T>
bool take(std::string_view bytes, T& v) {
    if (bytes.size() != sizeof v) return false;
    std::memcpy(&v, bytes.data(), sizeof v);
    return true;
}

std::string hex(uint64_t v) {
    char text[17];
    std::snprintf(text, sizeof text, "%lx", static_cast<unsigned long>(v));
    return text;
}
}  // namespace

Result<std::string> encode_spec(const LaunchSpec& spec) {
    if (spec.argv.empty() || spec.path.empty()) return fail("no program to start");
    std::string strings;
    const auto add = [&strings](const std::string& s) {
        if (s.find('\0') != std::string::npos) return false;
        strings.append(s.c_str(), s.size() + 1);
        return true;
    };
    bool good = add(spec.path) && add(spec.cwd.empty() ? "/" : spec.cwd);
    for (const auto* list : {&spec.argv, &spec.env})
        for (const std::string& s : *list) good = good && add(s);
    if (!good) return fail("a NUL character in the program, its arguments or its environment");
    souk_spec head{};
    head.magic = SOUK_SPEC_MAGIC;
    head.version = SOUK_INIT_VERSION;
    head.tty = spec.tty;
    head.uid = spec.uid;
    head.gid = spec.gid;
    head.umask = spec.umask;
    head.rows = spec.rows;
    head.cols = spec.cols;
    head.rlimits = static_cast<uint32_t>(spec.rlimits.size());
    head.groups = static_cast<uint32_t>(spec.groups.size());
    head.argc = static_cast<uint32_t>(spec.argv.size());
    head.envc = static_cast<uint32_t>(spec.env.size());
    const size_t length = sizeof head + spec.rlimits.size() * sizeof(souk_rlimit) +
                          spec.groups.size() * 4 + strings.size();
    if (length > SOUK_SPEC_MAX) return fail("arguments and environment are longer than 8 MiB");
    head.length = static_cast<uint32_t>(length);
    std::string out;
    out.reserve(length);
    append(out, head);
    for (const auto& l : spec.rlimits) append(out, souk_rlimit{l.resource, 0, l.soft, l.hard});
    for (const uint32_t g : spec.groups) append(out, g);
    return out + strings;
}

std::string encode_init_message(souk_type type, uint32_t stream, int32_t value, uint64_t offset,
                                uint64_t limit, std::string_view bytes) {
    MUST(bytes.size() <= SOUK_DATA_MAX);
    souk_msg m{};
    m.version = SOUK_INIT_VERSION;
    m.type = static_cast<uint16_t>(type);
    m.length = static_cast<uint32_t>(sizeof m + bytes.size());
    m.stream = stream;
    m.value = value;
    m.offset = offset;
    m.limit = limit;
    std::string out;
    out.reserve(m.length);
    append(out, m);
    out.append(bytes);
    return out;
}

Result<InitEvent> decode_init_event(std::string_view record) {
    souk_msg m;
    if (record.size() < sizeof m) return fail("souk-init sent a record that is too short");
    std::memcpy(&m, record.data(), sizeof m);
    if (m.version != SOUK_INIT_VERSION)
        return fail("souk-init speaks version " + std::to_string(m.version) + ", not " +
                    std::to_string(SOUK_INIT_VERSION));
    if (m.length != record.size() || record.size() > sizeof m + SOUK_DATA_MAX)
        return fail("souk-init sent a record of a wrong length");
    if (m.type < SOUK_WELCOME || m.type > SOUK_HELD)
        return fail("souk-init sent an unknown record, type " + std::to_string(m.type));
    const std::string_view bytes = record.substr(sizeof m);
    InitEvent e;
    e.kind = static_cast<InitEventKind>(m.type);
    e.stream = m.stream;
    e.value = m.value;
    e.offset = m.offset;
    e.limit = m.limit;
    bool good = true;
    if (e.kind == InitEventKind::welcome)
        good = take(bytes, e.welcome);
    else if (e.kind == InitEventKind::exited)
        good = take(bytes, e.exit) && e.exit.magic == SOUK_EXIT_MAGIC;
    else if (e.kind == InitEventKind::loaded && m.value == 0)
        good = take(bytes, e.residue) && e.residue.magic == SOUK_RESIDUE_MAGIC;
    else
        e.bytes = bytes;
    if (e.kind == InitEventKind::output || e.kind == InitEventKind::output_eof)
        good = m.stream >= 1 && m.stream <= SOUK_STREAMS && e.offset + e.bytes.size() >= e.offset;
    if (!good) return fail("souk-init sent a malformed record, type " + std::to_string(m.type));
    return e;
}

std::string InitEvent::trouble() const {
    return bytes + (value > 0 ? std::string(": ") + std::strerror(value) : "");
}

Result<souk_exit> decode_exit(std::string_view file) {
    souk_exit e;
    if (!take(file, e) || e.magic != SOUK_EXIT_MAGIC || e.version != SOUK_INIT_VERSION)
        return fail("exit record: damaged");
    return e;
}

Result<souk_residue> decode_residue(std::string_view file) {
    if (const char* wrong = check_residue(file.data(), file.size())) return fail(wrong);
    souk_residue r;
    std::memcpy(&r, file.data(), sizeof r);
    return r;
}

std::string tty_key(uint64_t rdev, uint64_t dev) {
    return "tty[" + hex(rdev) + ":" + hex(dev) + "]";
}

std::vector<std::string> stdio_keys(const souk_residue& residue) {
    if (residue.tty) return {tty_key(residue.tty_rdev, residue.tty_dev)};
    std::vector<std::string> keys;
    for (const uint64_t inode : residue.pipe_inode)
        keys.push_back("pipe:[" + std::to_string(inode) + "]");
    return keys;
}

}  // namespace souk
