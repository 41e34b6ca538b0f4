// SPDX-License-Identifier: GPL-2.0-or-later
// Files of images of real jobs, with entries and fields altered, added and taken away. What is let
// in of a plain user's job gives it nothing that is not his, also to a reader that takes the last
// of what stands twice and looks at nothing else, as CRIU's does.
#include <algorithm>
#include <cstdint>
#include <set>
#include <string>

#include "agentd/inspect/answers.hpp"
#include "checkpoint/core_image.hpp"
#include "checkpoint/criu_fields.hpp"
#include "kernel/base/rng.hpp"
#include "tests/fuzz/fuzz.hpp"
#include "tests/image_mutator.hpp"

using namespace souk;
using namespace souk::inspect;
using Fields = std::vector<test::WireField>;

namespace {

const CriuUser user{4321, 4321, {4321}};

// The last number of that field; nothing: there is none.
std::optional<uint64_t> number_in(const Fields& fields, uint32_t field) {
    std::optional<uint64_t> last;
    for (const test::WireField& f : fields)
        if (f.tag == field << 3) last = f.number;
    return last;
}

// The messages of that field as one: what a reader makes of several.
Fields message_in(const Fields& fields, uint32_t field) {
    std::string all;
    for (const test::WireField& f : fields)
        if (f.tag == (field << 3 | 2)) all += f.bytes;
    return test::fields_of(all).value_or(Fields{});
}

void require_core(std::string_view image) {
    enum { task = 3, thread = 5, creds = 10, ids = 8, none = 12, no_caps = 3 };
    const auto core = parse_core(image);
    one_line(core);
    if (!core) return;
    REQUIRE(pack(*parse_answer(pack(Answer(*core)))) == pack(Answer(*core)));
    if (!fits_user(*core, user) || !fits_limits(*core, {{13, 0}, {14, 0}})) return;
    const auto fields = test::fields_of(image.substr(12));
    if (!fields) return;  // CRIU does not read it either
    const Fields of_thread = message_in(*fields, thread), of_creds = message_in(of_thread, creds);
    if (of_creds.empty()) {
        REQUIRE(!core->alive);
        return;
    }
    for (uint32_t id = 1; id <= 8; ++id)
        REQUIRE(static_cast<uint32_t>(number_in(of_creds, id).value_or(0)) == 4321);
    for (const uint32_t caps : {9U, 10U, 11U, 19U})  // inheritable, permitted, effective, ambient
        for (const test::WireField& f : of_creds)
            if (f.tag == caps << 3 || f.tag == (caps << 3 | 2))
                REQUIRE(f.number == 0 && std::ranges::all_of(f.bytes, [](char c) {
                            return static_cast<uint8_t>(c) % 0x80 == 0;
                        }));
    constexpr uint32_t reset_on_fork = 0x40000000;
    const auto policy = static_cast<uint32_t>(number_in(of_thread, 4).value_or(0)) & ~reset_on_fork;
    REQUIRE(policy != 1 && policy != 2);
}

void require_files(std::string_view image) {
    const auto kinds = parse_entry_kinds(image);
    one_line(kinds);
    if (!kinds || !fits_kinds(*kinds)) return;
    const std::set<uint64_t> others = {10, 12, 15, 16, 19};  // CRIU images/fdinfo.proto
    for (size_t at = 8; at < image.size();) {
        const size_t bytes = criu_u32(image, at);
        const auto fields = test::fields_of(image.substr(at + 4, bytes));
        at += 4 + bytes;
        if (!fields) return;
        const uint64_t kind = number_in(*fields, 1).value_or(0);
        REQUIRE(kind > 0 && kind <= 20 && !others.contains(kind));
        for (const uint32_t refused : {6U, 11U, 14U, 15U, 21U})  // and what they are made of
            REQUIRE(message_in(*fields, refused).empty());
    }
}

}  // namespace

// The first byte says which file it is.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    if (size == 0) return 0;
    const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
    switch (static_cast<FileKind>(data[0])) {
        case FileKind::core: require_core(bytes); break;
        case FileKind::ghost: one_line(parse_ghost(bytes)); break;
        case FileKind::files: require_files(bytes); break;
        case FileKind::ids: one_line(parse_ids(bytes)); break;
        case FileKind::fs: one_line(parse_fs(bytes)); break;
        case FileKind::inventory: one_line(parse_inventory(bytes)); break;
        default: break;
    }
    return 0;
}

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

// Most changes are of what the file says; some are of its bytes.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
    Rng rng(seed);
    if (size < 2 || rng.below(8) == 0) return LLVMFuzzerMutate(data, size, max_size);
    test::ImageMutator mutator([&rng](uint64_t n) { return rng.below(n); });
    std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
    for (uint64_t changes = 1 + rng.below(3); changes > 0; --changes) bytes = mutator.mutate(bytes);
    // One message in a file has its length before it.
    const size_t n = std::min(bytes.size(), max_size - 1);
    std::copy_n(bytes.begin(), n, data + 1);
    return n + 1;
}
