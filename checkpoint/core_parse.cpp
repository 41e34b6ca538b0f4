// SPDX-License-Identifier: GPL-2.0-or-later
// These functions read the bytes of an image, which a hostile node may have made. They run in a
// process without rights, so that a fault in them gains an attacker nothing.
#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <set>

#include "checkpoint/core_image.hpp"
#include "checkpoint/criu_fields.hpp"
#include "kernel/sys/process/init_protocol.h"

namespace souk {
namespace {
constexpr size_t groups_max = 65'536, capability_words_max = 2;

Error damaged(const char* what) { return Error{0, std::string("core image: ") + what}; }

// A field of a message has a number, and a value or bytes.
struct Field {
    uint32_t number;
    uint64_t value;
    std::optional<std::string_view> bytes;
};

// Calls `take` for each field. Fields in `repeated` may stand more than once, others at most once.
template <class Take>
Status each_field(std::string_view message, std::initializer_list<uint32_t> repeated, Take take) {
    std::set<uint32_t> seen;
    ProtobufFields f(message);
    while (f.inner = {}, f.next()) {
        if (std::ranges::find(repeated, f.number) == repeated.end() &&
            !seen.insert(f.number).second)
            return tl::unexpected(damaged("a field stands twice"));
        Field field{f.number, f.value, std::nullopt};
        if (f.inner.data() != nullptr) field.bytes = f.inner;
        TRY(take(field));
    }
    if (!f.good) return tl::unexpected(damaged("not whole"));
    return {};
}

// Numbers of a repeated field, one by one or packed.
Status append_numbers(const Field& field, size_t most, std::vector<uint32_t>& to) {
    const auto one = [&](uint64_t value) -> Status {
        if (value > UINT32_MAX || to.size() == most)
            return tl::unexpected(damaged("too long a list"));
        to.push_back(static_cast<uint32_t>(value));
        return {};
    };
    if (!field.bytes) return one(field.value);
    for (size_t at = 0; at < field.bytes->size();) {
        uint64_t value = 0;
        int shift = 0;
        for (;; shift += 7) {
            if (at == field.bytes->size() || shift > 63)
                return tl::unexpected(damaged("a list is cut short"));
            const auto byte = static_cast<uint8_t>((*field.bytes)[at++]);
            value |= uint64_t{byte & 0x7fU} << shift;
            if (byte < 0x80) break;
        }
        TRY(one(value));
    }
    return {};
}

Status parse_creds(std::string_view message, Credentials& c) {
    enum { caps_inh = 9, caps_bnd = 12, secbits, groups, no_new_privs = 18, caps_amb = 19 };
    std::array<std::vector<uint32_t>, 5> words;
    unsigned ids = 0;
    TRY(each_field(message, {9, 10, 11, 12, 14, 19}, [&](const Field& f) -> Status {
        if (f.number >= 1 && f.number <= 8) {
            if (f.bytes || f.value > UINT32_MAX) return tl::unexpected(damaged("an id is none"));
            ++ids;
            (f.number % 2 == 1 ? c.uids : c.gids)[(f.number - 1) / 2] =
                static_cast<uint32_t>(f.value);
        }
        if (f.number >= caps_inh && f.number <= caps_bnd)
            return append_numbers(f, capability_words_max, words[f.number - caps_inh]);
        if (f.number == caps_amb) return append_numbers(f, capability_words_max, words[4]);
        if (f.number == groups) return append_numbers(f, groups_max, c.groups);
        if (f.number == no_new_privs) c.no_new_privs = f.value != 0;
        return {};
    }));
    if (ids != 8) return tl::unexpected(damaged("ids are missing"));
    for (size_t set = 0; set < words.size(); ++set)
        for (size_t word = 0; word < words[set].size(); ++word)
            c.capabilities[set] |= uint64_t{words[set][word]} << (32 * word);
    std::ranges::sort(c.groups);
    return {};
}

Status parse_thread(std::string_view message, CoreImage& core) {
    enum { sched_nice = 3, sched_policy, sched_prio, creds = 10, seccomp_mode = 11 };
    return each_field(message, {}, [&](const Field& f) -> Status {
        if (f.number == sched_policy) {
            // CRIU's reader cuts off what has no room in 32 bits.
            const uint32_t policy = static_cast<uint32_t>(f.value) & ~uint32_t{SCHED_RESET_ON_FORK};
            core.realtime = policy == SCHED_FIFO || policy == SCHED_RR;
        }
        if (f.number == sched_prio) core.priority = static_cast<uint32_t>(f.value);
        if (f.number == sched_nice) {  // the sign in the lowest bit
            const auto folded = static_cast<uint32_t>(f.value);
            core.nice = static_cast<int32_t>(folded >> 1 ^ (~(folded & 1) + 1));
        }
        if (f.number == seccomp_mode) core.credentials.seccomp = static_cast<uint32_t>(f.value);
        if (f.number != creds || !f.bytes) return {};
        core.has_credentials = true;
        return parse_creds(*f.bytes, core.credentials);
    });
}

Status parse_task(std::string_view message, CoreImage& core) {
    enum { task_state = 1, sigactions = 15 };
    constexpr uint64_t ended[] = {2, 6};  // CRIU include/crtools.h: TASK_DEAD, TASK_ZOMBIE
    return each_field(message, {sigactions}, [&](const Field& f) -> Status {
        if (f.number == task_state && std::ranges::find(ended, f.value) != std::end(ended))
            core.alive = false;
        return {};
    });
}

// The message of an image that has one.
Result<std::string_view> only_message(std::string_view image, uint32_t magic) {
    if (image.size() < 12 || criu_u32(image, 0) != criu_common_magic ||
        criu_u32(image, 4) != magic || criu_u32(image, 8) != image.size() - 12)
        return tl::unexpected(damaged("not one that CRIU wrote"));
    return image.substr(12);
}

// CRIU images/fdinfo.proto, file_entry: the field that an entry of each kind has.
constexpr uint32_t field_of_kind[] = {0,  3,  18, 17, 4,  16, 8,  9,  13, 10, 6,
                                      19, 14, 7,  5,  11, 15, 12, 20, 21, 22};

// CRIU images/regfile.proto.
Result<std::string_view> name_in(std::string_view regular) {
    enum { name = 6, build_id = 11 };
    std::string_view found;
    TRY(each_field(regular, {build_id}, [&](const Field& f) -> Status {
        if (f.number == name) found = f.bytes.value_or("");
        return {};
    }));
    return found;
}

// One file; it says what it is once, and has nothing of another kind. `regular`: the numbers of
// those that have a name.
Status add_kind(std::string_view entry, EntryKinds& kinds, std::set<uint32_t>& regular) {
    enum { type = 1, id = 2, reg = 3 };
    uint64_t kind = 0, number = 0;
    uint32_t body = 0;
    std::string_view within;
    TRY(each_field(entry, {}, [&](const Field& f) -> Status {
        if (f.number == type && !f.bytes) kind = f.value;
        if (f.number == id) number = f.value;
        if (f.number == type || f.number == id) return {};
        if (!f.bytes || body != 0) return tl::unexpected(damaged("a file of two kinds"));
        body = f.number;
        within = *f.bytes;
        return {};
    }));
    if (kind == 0 || kind >= std::size(field_of_kind) || field_of_kind[kind] != body)
        return tl::unexpected(damaged("a file of no kind"));
    kinds.bits |= uint64_t{1} << kind;
    if (body != reg) return {};
    if (number > UINT32_MAX || !regular.insert(static_cast<uint32_t>(number)).second)
        return tl::unexpected(damaged("two files of one number"));
    TRY_ASSIGN(const std::string_view name, name_in(within));
    if (name == "/" || name == SOUK_FILES_ROOT)
        kinds.roots.push_back(static_cast<uint32_t>(number));
    return {};
}

// CRIU images/core.proto, task_kobj_ids_entry.
Result<ImageNamespaces> namespaces_in(std::string_view message) {
    constexpr uint32_t fields[] = {5, 6, 9, 10, 11};  // pid, net, mnt, user, cgroup
    ImageNamespaces found;
    TRY(each_field(message, {}, [&](const Field& f) -> Status {
        const auto which = std::ranges::find(fields, f.number);
        if (which == std::end(fields)) return {};
        if (f.bytes || f.value > UINT32_MAX) return tl::unexpected(damaged("a namespace is none"));
        found.ids[static_cast<size_t>(which - fields)] = static_cast<uint32_t>(f.value);
        return {};
    }));
    return found;
}
}  // namespace

Result<EntryKinds> parse_entry_kinds(std::string_view image) {
    constexpr uint32_t files_magic = 0x56303138;
    if (image.size() < 8 || criu_u32(image, 0) != criu_common_magic ||
        criu_u32(image, 4) != files_magic)
        return tl::unexpected(damaged("not one that CRIU wrote"));
    EntryKinds kinds;
    std::set<uint32_t> regular;
    for (image.remove_prefix(8); !image.empty();) {
        if (image.size() < 4 || criu_u32(image, 0) > image.size() - 4)
            return tl::unexpected(damaged("cut short"));
        const size_t bytes = criu_u32(image, 0);
        TRY(add_kind(image.substr(4, bytes), kinds, regular));
        image.remove_prefix(4 + bytes);
    }
    std::ranges::sort(kinds.roots);
    return kinds;
}

Result<ImageNamespaces> parse_ids(std::string_view image) {
    constexpr uint32_t ids_magic = 0x54432030;
    TRY_ASSIGN(const std::string_view message, only_message(image, ids_magic));
    return namespaces_in(message);
}

// An inventory.img alone has no word before its own magic.
Result<ImageNamespaces> parse_inventory(std::string_view image) {
    constexpr uint32_t inventory_magic = 0x58313116;
    enum { root_ids = 3 };
    if (image.size() < 8 || criu_u32(image, 0) != inventory_magic ||
        criu_u32(image, 4) != image.size() - 8)
        return tl::unexpected(damaged("not one that CRIU wrote"));
    ImageNamespaces found;
    TRY(each_field(image.substr(8), {}, [&](const Field& f) -> Status {
        if (f.number != root_ids || !f.bytes) return {};
        TRY_ASSIGN(found, namespaces_in(*f.bytes));
        return {};
    }));
    return found;
}

Result<FsRoot> parse_fs(std::string_view image) {
    constexpr uint32_t fs_magic = 0x51403912;
    enum { root = 2 };
    TRY_ASSIGN(const std::string_view message, only_message(image, fs_magic));
    FsRoot found;
    TRY(each_field(message, {}, [&](const Field& f) -> Status {
        if (f.number == root && (f.bytes || f.value > UINT32_MAX))
            return tl::unexpected(damaged("a root directory is none"));
        if (f.number == root) found.file = static_cast<uint32_t>(f.value);
        return {};
    }));
    return found;
}

Result<CoreImage> parse_core(std::string_view image) {
    constexpr uint32_t core_magic = 0x55053847;
    enum { tc = 3, thread_core = 5 };
    TRY_ASSIGN(const std::string_view message, only_message(image, core_magic));
    CoreImage core;
    core.alive = true;
    TRY(each_field(message, {}, [&](const Field& f) -> Status {
        if (f.number == tc && f.bytes) return parse_task(*f.bytes, core);
        if (f.number == thread_core && f.bytes) return parse_thread(*f.bytes, core);
        return {};
    }));
    return core;
}

// CRIU images/ghost-file.proto.
Result<uint32_t> parse_ghost(std::string_view image) {
    enum { mode = 3 };
    if (image.size() < 12 || criu_u32(image, 8) > image.size() - 12)
        return tl::unexpected(damaged("a deleted file is none"));
    uint32_t found = 0;
    TRY(each_field(image.substr(12, criu_u32(image, 8)), {}, [&](const Field& f) -> Status {
        if (f.number == mode) found = static_cast<uint32_t>(f.value);
        return {};
    }));
    return found;
}

}  // namespace souk
