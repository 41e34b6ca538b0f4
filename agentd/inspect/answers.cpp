// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/inspect/answers.hpp"

#include <algorithm>

#include "kernel/base/packing.hpp"
#include "kernel/base/text.hpp"

namespace souk::inspect {
namespace {

constexpr uint8_t core_answer = 16, ghost_answer = 17, refusal = 18, kinds_answer = 19,
                  namespaces_answer = 20, fs_answer = 21;
constexpr uint8_t alive = 1, has_credentials = 2, no_new_privs = 4, realtime = 8, all = 15;

tl::unexpected<Error> no_packet() { return fail("a packet that is not one of souk-inspect"); }

void write_core(PackWriter& w, const CoreImage& core) {
    const Credentials& c = core.credentials;
    w.number((core.alive ? alive : 0U) | (core.has_credentials ? has_credentials : 0U) |
                 (c.no_new_privs ? no_new_privs : 0U) | (core.realtime ? realtime : 0U),
             1);
    w.number(c.seccomp, 4);
    w.number(core.priority, 4);
    w.number(static_cast<uint32_t>(core.nice), 4);
    for (const auto* ids : {&c.uids, &c.gids})
        for (const uint32_t id : *ids) w.number(id, 4);
    for (const uint64_t set : c.capabilities) w.number(set, 8);
    w.number(c.groups.size(), 4);
    for (const uint32_t group : c.groups) w.number(group, 4);
}

Result<Answer> read_core(PackReader& r) {
    CoreImage core;
    Credentials& c = core.credentials;
    const uint64_t flags = r.number(1);
    core.alive = (flags & alive) != 0;
    core.has_credentials = (flags & has_credentials) != 0;
    c.no_new_privs = (flags & no_new_privs) != 0;
    core.realtime = (flags & realtime) != 0;
    c.seccomp = static_cast<uint32_t>(r.number(4));
    core.priority = static_cast<uint32_t>(r.number(4));
    core.nice = static_cast<int32_t>(r.number(4));
    for (auto* ids : {&c.uids, &c.gids})
        for (uint32_t& id : *ids) id = static_cast<uint32_t>(r.number(4));
    for (uint64_t& set : c.capabilities) set = r.number(8);
    const uint64_t count = r.number(4);
    if (count > groups_max || r.rest.size() != 4 * count) return no_packet();
    for (uint64_t i = 0; i < count; ++i) c.groups.push_back(static_cast<uint32_t>(r.number(4)));
    if (!r.good() || flags > all || !std::ranges::is_sorted(c.groups)) return no_packet();
    return core;
}

Result<Answer> read_kinds(PackReader& r) {
    EntryKinds kinds;
    kinds.bits = r.number(8);
    const uint64_t count = r.number(4);
    if (count > groups_max || r.rest.size() != 4 * count) return no_packet();
    for (uint64_t i = 0; i < count; ++i) kinds.roots.push_back(static_cast<uint32_t>(r.number(4)));
    if (!r.good() || !std::ranges::is_sorted(kinds.roots)) return no_packet();
    return kinds;
}

}  // namespace

std::string pack(FileKind question) { return {static_cast<char>(question)}; }

Result<FileKind> parse_question(std::string_view packet) {
    for (const FileKind kind : {FileKind::core, FileKind::ghost, FileKind::files, FileKind::ids,
                                FileKind::inventory, FileKind::fs})
        if (packet == pack(kind)) return kind;
    return no_packet();
}

std::string pack(const Answer& answer) {
    PackWriter w;
    if (const auto* core = std::get_if<CoreImage>(&answer)) {
        if (core->credentials.groups.size() > groups_max)
            return pack(Refusal{"a process of too many groups"});
        w.number(core_answer, 1);
        write_core(w, *core);
    } else if (const auto* ghost = std::get_if<GhostMode>(&answer)) {
        w.number(ghost_answer, 1);
        w.number(ghost->mode, 4);
    } else if (const auto* kinds = std::get_if<EntryKinds>(&answer)) {
        w.number(kinds_answer, 1);
        if (kinds->roots.size() > groups_max)
            return pack(Refusal{"an image of too many root directories"});
        w.number(kinds->bits, 8);
        w.number(kinds->roots.size(), 4);
        for (const uint32_t root : kinds->roots) w.number(root, 4);
    } else if (const auto* namespaces = std::get_if<ImageNamespaces>(&answer)) {
        w.number(namespaces_answer, 1);
        for (const uint32_t id : namespaces->ids) w.number(id, 4);
    } else if (const auto* root = std::get_if<FsRoot>(&answer)) {
        w.number(fs_answer, 1);
        w.number(root->file, 4);
    } else {
        w.number(refusal, 1);
        w.text(std::string_view(std::get<Refusal>(answer).why).substr(0, why_bytes_max));
    }
    return w.bytes;
}

Result<Answer> parse_answer(std::string_view packet) {
    PackReader r{packet};
    const uint64_t kind = r.number(1);
    if (kind == core_answer) return read_core(r);
    if (kind == kinds_answer) return read_kinds(r);
    Answer answer;
    ImageNamespaces namespaces;
    if (kind == ghost_answer)
        answer = GhostMode{static_cast<uint32_t>(r.number(4))};
    else if (kind == fs_answer)
        answer = FsRoot{static_cast<uint32_t>(r.number(4))};
    else if (kind == namespaces_answer) {
        for (uint32_t& id : namespaces.ids) id = static_cast<uint32_t>(r.number(4));
        answer = namespaces;
    } else if (kind == refusal)
        answer = Refusal{blank_controls(r.text(why_bytes_max))};
    else
        return no_packet();
    return r.good() ? Result<Answer>(answer) : no_packet();
}

}  // namespace souk::inspect
