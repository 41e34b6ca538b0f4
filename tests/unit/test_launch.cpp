// SPDX-License-Identifier: GPL-2.0-or-later
// LaunchSpec (kernel/base/launch.hpp), the one description of a program to start: what of it is in
// the packed form that souk-init reads. The fields come from its list, so a new one is looked for
// too. What a JobSpec is on the wire and on disk is in test_records.cpp.
#include <cstring>

#include "kernel/base/value_fields.hpp"
#include "kernel/sys/process/init_codec.hpp"
#include "kernel/sys/process/init_spec.hpp"
#include "tests/unit/unit.hpp"

using namespace souk;

namespace {

LaunchSpec sample() {
    LaunchSpec s;
    s.argv = {"sh", "-c", "echo \xff"};
    s.path = "/bin/sh";
    s.env = {"HOME=/home/u", "LANG=C"};
    s.cwd = "/home/u";
    s.umask = 027;
    s.rlimits = {{7, 1024, 4096}, {3, 8388608, UINT64_MAX}};
    s.uid = 1000;
    s.gid = 1001;
    s.groups = {4, 24};
    s.tty = true;
    s.rows = 50;
    s.cols = 132;
    return s;
}

std::string packed(const LaunchSpec& s) {
    const auto bytes = encode_spec(s);
    ck_assert_msg(bytes.has_value(), "%s", bytes ? "" : bytes.error().message.c_str());
    return *bytes;
}

// Reads the specification as souk-init does.
LaunchSpec read(std::string bytes) {
    std::vector<uint64_t> aligned((bytes.size() + 7) / 8);
    std::memcpy(aligned.data(), bytes.data(), bytes.size());
    SpecView view;
    const char* const wrong = parse_spec(aligned.data(), bytes.size(), &view);
    ck_assert_msg(!wrong, "%s", wrong);
    std::vector<char*> vectors(size_t{view.head->argc} + view.head->envc + 2);
    spec_vectors(view, vectors.data());
    LaunchSpec s;
    s.path = view.path;
    s.cwd = view.cwd;
    s.argv.assign(vectors.begin(), vectors.begin() + view.head->argc);
    s.env.assign(vectors.begin() + view.head->argc + 1, vectors.end() - 1);
    s.umask = view.head->umask;
    s.uid = view.head->uid;
    s.gid = view.head->gid;
    s.groups.assign(view.groups, view.groups + view.head->groups);
    for (uint32_t i = 0; i < view.head->rlimits; ++i)
        s.rlimits.push_back({view.rlimits[i].resource, view.rlimits[i].soft, view.rlimits[i].hard});
    s.tty = view.head->tty != 0;
    s.rows = static_cast<uint16_t>(view.head->rows);
    s.cols = static_cast<uint16_t>(view.head->cols);
    return s;
}

void change(bool& v) { v = !v; }
void change(std::string& v) { v += "x"; }
void change(std::vector<ResourceLimit>& v) { ++v.back().soft; }
template <class T>
void change(std::vector<T>& v) {
    v.push_back(v.back());
}
template <std::integral T>
void change(T& v) {
    ++v;
}

}  // namespace

// Commit 59249cf wrote these bytes. The format must not change, because a capsule's souk-init may
// be older than the agentd that starts its job.
START_TEST(a_launch_specification_has_the_bytes_that_it_had) {
    const char* const then =
        "5350454301000000a10000000100000000000000e8030000e90300001700000032000000840000000200000002"
        "00"
        "000003000000020000000700000000000000000400000000000000100000000000000300000000000000000080"
        "0000"
        "000000ffffffffffffffff04000000180000002f62696e2f7368002f686f6d652f75007368002d63006563686f"
        "20"
        "ff00484f4d453d2f686f6d652f75004c414e473d4300";
    std::string hex;
    for (const char c : packed(sample())) {
        char digits[3];
        std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned char>(c));
        hex += digits;
    }
    ck_assert_text(hex, then);
}
END_TEST

START_TEST(souk_init_is_told_every_field_of_a_launch_specification) {
    const std::string before = packed(sample());
    ck_assert(read(before) == sample());
    size_t fields = 0;
    for_each_field<LaunchSpec>([&](const auto& entry) {
        LaunchSpec other = sample();
        change(other.*entry.member);
        const std::string after = packed(other);
        ck_assert_msg(after != before, "souk-init is not told of %s", entry.name);
        ck_assert_msg(read(after) == other, "%s reads back as another", entry.name);
        ck_assert_text(changed_fields(sample(), read(after)), entry.name);
        ++fields;
    });
    ck_assert_uint_eq(fields, 12);
}
END_TEST

// setresuid(-1) leaves souk-init's child the user that it is, which is root.
START_TEST(a_user_or_group_that_means_as_before_is_refused) {
    for (const bool user : {true, false}) {
        LaunchSpec s;
        s.argv = {"x"};
        s.path = "/x";
        s.cwd = "/";
        s.uid = user ? no_id : 1000;
        s.gid = user ? 1000 : no_id;
        std::string bytes = packed(s);
        std::vector<uint64_t> aligned((bytes.size() + 7) / 8);
        std::memcpy(aligned.data(), bytes.data(), bytes.size());
        SpecView view;
        const char* const wrong = parse_spec(aligned.data(), bytes.size(), &view);
        ck_assert(wrong != nullptr);
        const std::string said = wrong;
        ck_assert_text(said, "launch specification: nobody's user");
    }
}
END_TEST

UNIT_SUITE(launch, a_launch_specification_has_the_bytes_that_it_had,
           souk_init_is_told_every_field_of_a_launch_specification,
           a_user_or_group_that_means_as_before_is_refused);
