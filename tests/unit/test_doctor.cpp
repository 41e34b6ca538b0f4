// SPDX-License-Identifier: GPL-2.0-or-later
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "checkpoint/doctor.hpp"
#include "checkpoint/gpu_plugins.hpp"
#include "tests/unit/cgroup_fixture.hpp"
#include "tests/unit/temp_dir.hpp"
#include "tests/unit/unit.hpp"

using namespace souk;

namespace {
const Need* named(const std::vector<Need>& needs, const std::string& name) {
    for (const Need& need : needs)
        if (need.name == name) return &need;
    return nullptr;
}
}  // namespace

START_TEST(every_need_says_what_was_found_and_how_to_mend_it) {
    const std::vector<Need> needs = examine(Examination::quick, "/nonexistent");
    for (const Need& need : needs) {
        ck_assert_msg(!need.name.empty() && !need.use.empty() && !need.found.empty(), "%s",
                      need.name.c_str());
        ck_assert_msg(need.met == need.mend.empty(), "%s", need.name.c_str());
        ck_assert(need.found.find('\n') == std::string::npos);
    }
    for (const char* const name : {"io_uring", "cgroups", "namespaces", "CRIU", "BTF",
                                   "fs.pipe-max-size", "CAP_SYS_RESOURCE"})
        ck_assert_msg(named(needs, name) != nullptr, "%s", name);
}
END_TEST

START_TEST(only_required_needs_stop_a_daemon_and_in_one_line) {
    std::vector<Need> needs{{"one", "a", true, true, "here", ""},
                            {"two", "b", false, false, "nowhere", "get two"}};
    ck_assert(require(needs));
    needs.push_back({"three", "c", true, false, "broken", "mend three"});
    needs.push_back({"four", "d", true, false, "gone", "mend four"});
    ck_assert_text(require(needs).error().message,
                   "this machine lacks three (broken): mend three; four (gone): mend four");
    ck_assert_text(needs_json({needs[2]}),
                   R"([{"name":"three","use":"c","required":true,"met":false,)"
                   R"("found":"broken","mend":"mend three"}])");
    const std::string text = needs_text(needs);
    ck_assert(text.find("MISSING  three") != std::string::npos);
    ck_assert(text.find("without  two") != std::string::npos);
    ck_assert(text.find("to mend: get two") != std::string::npos);
}
END_TEST

START_TEST(without_rights_the_doctor_says_run_as_root) {
    if (!unit::need_root("giving up root")) return;
    const pid_t child = ::fork();
    if (child == 0) {
        MUST(::setresgid(65534, 65534, 65534) == 0 && ::setresuid(65534, 65534, 65534) == 0);
        const std::vector<Need> needs = examine_kernel();
        const Need* admin = named(needs, "CAP_SYS_ADMIN");
        const Status fit = require(needs);
        ::_exit(admin && !admin->met && admin->mend == "run as root" && !fit ? 0 : 1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    ck_assert_int_eq(status, 0);
}
END_TEST

START_TEST(a_criu_that_cannot_work_is_refused_with_its_reason) {
    if (!unit::need_root("trying CRIU")) return;
    ck_assert_text(try_criu(CriuTool{{"/nonexistent/criu"}, {}}).error().message,
                   "cannot start /nonexistent/criu");
    ck_assert_text(try_criu(CriuTool{{"/bin/true"}, {}}).error().message,
                   "it does not say its version");
}
END_TEST

START_TEST(the_criu_of_this_machine_dumps_and_restores) {
    if (!unit::need_root("trying CRIU")) return;
    const auto tool = find_criu();
    UNIT_SKIP_IF(tool ? nullptr : tool.error().message.c_str());
    const auto version = try_criu(*tool);
    ck_assert_msg(version.has_value(), "%s", version ? "" : version.error().message.c_str());
    ck_assert_msg(version->find('.') != std::string::npos, "%s", version->c_str());
    ck_assert(::access("/run/souk-doctor", F_OK) != 0);
}
END_TEST

START_TEST(what_can_write_gpus_down_is_found_where_it_lies) {
    namespace fs = std::filesystem;
    const unit::TempDir dir;
    const fs::path root = dir.path + "/gpus";
    fs::create_directories(root / "dev");
    const auto put = [&](const char* file, const char* text = "") {
        fs::create_directories((root / file).parent_path());
        std::ofstream(root / file) << text;
    };
    const auto said = [&] { return examine_gpus(root, "/nonexistent"); };
    // Without such GPUs nothing is missing.
    ck_assert(said()[0].met && said()[1].met);
    ck_assert_text(said()[0].found,
                   "no such GPU here; no cuda_plugin.so, no cuda-checkpoint, no driver");
    put("dev/nvidia0");
    put("dev/nvidiactl");
    put("dev/kfd");
    ck_assert(!said()[0].met && !said()[1].met);
    ck_assert_text(said()[0].mend,
                   "a CRIU (4.0 or newer) with cuda_plugin.so; cuda-checkpoint of NVIDIA in "
                   "/usr/bin; a driver from version 550 on");
    put("usr/lib/criu/cuda_plugin.so");
    put("usr/bin/cuda-checkpoint");
    put("proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.161.08  Thu\nGCC version: 12\n");
    ck_assert_text(said()[0].mend, "a driver from version 550 on");
    put("proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Thu\nGCC version: 12\n");
    put("usr/lib/x86_64-linux-gnu/criu/amdgpu_plugin.so");
    const std::vector<Need> all = said();
    ck_assert(all[0].met && all[1].met && all[0].mend.empty() && all[1].mend.empty());
    ck_assert_text(all[0].found, root.string() + "/usr/lib/criu/cuda_plugin.so, " + root.string() +
                                     "/usr/bin/cuda-checkpoint, driver 550.54.15");
    ck_assert(!all[0].required && !all[1].required);
}
END_TEST

UNIT_SUITE(doctor, every_need_says_what_was_found_and_how_to_mend_it,
           only_required_needs_stop_a_daemon_and_in_one_line,
           without_rights_the_doctor_says_run_as_root,
           what_can_write_gpus_down_is_found_where_it_lies,
           a_criu_that_cannot_work_is_refused_with_its_reason,
           the_criu_of_this_machine_dumps_and_restores);
