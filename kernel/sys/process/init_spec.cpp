// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/process/init_spec.hpp"

#include <stdint.h>
#include <string.h>

namespace souk {
namespace {
// The string at *at, which then points behind it; null if it does not end before `end`.
char* take_string(char** at, char* end) {
    char* begin = *at;
    char* zero = static_cast<char*>(memchr(begin, 0, static_cast<size_t>(end - begin)));
    if (!zero) return nullptr;
    *at = zero + 1;
    return begin;
}
}  // namespace

const char* parse_spec(void* data, size_t size, SpecView* view) {
    if (size < sizeof(souk_spec) || size > SOUK_SPEC_MAX) return "launch specification: bad length";
    auto* head = static_cast<const souk_spec*>(data);
    if (head->magic != SOUK_SPEC_MAGIC || head->version != SOUK_INIT_VERSION)
        return "launch specification: bad version";
    if (head->length != size) return "launch specification: cut short";
    if (head->argc == 0) return "launch specification: no program";
    const uint64_t fixed =
        uint64_t{head->rlimits} * sizeof(souk_rlimit) + uint64_t{head->groups} * sizeof(uint32_t);
    if (fixed > size - sizeof *head) return "launch specification: cut short";
    // "As before" to the kernel: the job would stay root.
    if (head->uid == UINT32_MAX || head->gid == UINT32_MAX)
        return "launch specification: nobody's user";
    char* at = static_cast<char*>(data) + sizeof *head;
    char* end = static_cast<char*>(data) + size;
    view->head = head;
    view->rlimits = reinterpret_cast<const souk_rlimit*>(at);
    at += head->rlimits * sizeof(souk_rlimit);
    view->groups = reinterpret_cast<const uint32_t*>(at);
    at += head->groups * sizeof(uint32_t);
    view->path = take_string(&at, end);
    view->cwd = view->path ? take_string(&at, end) : nullptr;
    if (!view->cwd) return "launch specification: no path";
    view->first_arg = at;
    for (uint64_t n = uint64_t{head->argc} + head->envc; n > 0; --n)
        if (!take_string(&at, end)) return "launch specification: arguments cut short";
    return at == end ? nullptr : "launch specification: trailing bytes";
}

void spec_vectors(const SpecView& view, char** out) {
    char* at = view.first_arg;
    const uint32_t counts[2] = {view.head->argc, view.head->envc};
    for (const uint32_t count : counts) {
        for (uint32_t i = 0; i < count; ++i) {
            *out++ = at;
            at += strlen(at) + 1;
        }
        *out++ = nullptr;
    }
}

const char* check_residue(const void* data, size_t size) {
    if (size < sizeof(souk_residue) || size > SOUK_RESIDUE_MAX) return "residue: bad length";
    auto* r = static_cast<const souk_residue*>(data);
    if (r->magic != SOUK_RESIDUE_MAGIC || r->version != SOUK_INIT_VERSION)
        return "residue: bad version";
    uint64_t want = sizeof *r;
    const uint64_t lengths[4] = {r->input_len, r->out[0].end - r->out[0].base,
                                 r->out[1].end - r->out[1].base, r->typed_len};
    for (const uint64_t length : lengths) {
        if (length > SOUK_RESIDUE_MAX) return "residue: bad length";
        want += length;
    }
    if (want != size) return "residue: cut short";
    return r->root_pid > 1 ? nullptr : "residue: no root";
}

}  // namespace souk
