// SPDX-License-Identifier: GPL-2.0-or-later
// The mounts of two machines are compared by texts of mountinfo and of /proc/fs/nfsfs/volumes, as
// the kernels of the machines write them.
#include "agentd/core/files_choice.hpp"
#include "kernel/sys/store/same_files.hpp"
#include "tests/unit/unit.hpp"

using namespace souk;

namespace {

const std::string disk = "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n";
const std::string own =
    "30 27 0:39 / /state/ram rw - tmpfs souk rw\n"
    "31 27 0:22 / /sys rw - sysfs sysfs rw\n"
    "32 27 0:25 / /dev/shm rw - tmpfs tmpfs rw\n"
    "33 27 0:26 / /run/user/1000 rw - tmpfs tmpfs rw\n";
std::string nfs(const std::string& device, const std::string& source) {
    return "40 27 " + device + " / /home rw - nfs4 " + source + " rw,addr=10.0.0.1\n";
}
std::string volume(const std::string& device, const std::string& fsid) {
    return "NV SERVER   PORT DEV          FSID                              FSC\n"
           "v4 0a000001  801 " +
           device + "         " + fsid + "                 no\n";
}
std::string of(const std::string& mountinfo, const std::string& boot, const std::string& volumes,
               const std::vector<std::string>& directories = {}) {
    return file_systems_of(parse_mounts(mountinfo), boot, volumes, directories);
}

START_TEST(nodes_of_one_machine_have_the_same_and_two_machines_do_not) {
    const std::string here = of(disk + own, "boot-a", "");
    ck_assert_text(here, "/ here boot-a 65024 /\n");
    ck_assert_text(of(disk, "boot-a", ""), here.c_str());
    ck_assert(of(disk, "boot-b", "") != here);
    // A directory that something else lies over on one of them.
    const std::string hidden = disk + "50 27 0:60 / /home/me rw - tmpfs none rw\n";
    ck_assert(of(hidden, "boot-a", "") != here);
    // The one on top counts.
    ck_assert(of(disk + "51 1 254:1 / / rw - ext4 /dev/vdb rw\n", "boot-a", "") != here);
    // This is another directory of the same device.
    ck_assert(of("27 1 254:0 /other / rw - ext4 /dev/vda rw\n", "boot-a", "") != here);
}
END_TEST

START_TEST(a_share_of_one_server_is_the_same_on_two_machines) {
    const auto home = [](const std::string& device, const std::string& source,
                         const std::string& fsid, const std::vector<std::string>& directories) {
        return of(disk + nfs(device, source), "boot-" + device, volume(device, fsid), directories);
    };
    const std::vector<std::string> shared = {"/home"};
    const std::string one = home("0:50", "filer:/export/home", "1a:0", shared);
    ck_assert_text(one, "/home nfs 0a000001 801 1a:0 /export/home /\n");
    // The device is each machine's own, and the name of the server.
    ck_assert_text(home("0:77", "10.0.0.1:/export/home", "1a:0", shared), one.c_str());
    ck_assert_text(home("0:77", "[fe80::1]:/export/home", "1a:0", shared), one.c_str());
    ck_assert(home("0:50", "filer:/export/home", "2b:0", shared) != one);
    ck_assert(home("0:50", "filer:/export", "1a:0", shared) != one);
    // The disks differ, so all together do.
    ck_assert(home("0:50", "filer:/export/home", "1a:0", {}) !=
              home("0:77", "filer:/export/home", "1a:0", {}));
    // A share that the kernel says nothing of is not taken for another machine's.
    ck_assert(of(nfs("0:50", "filer:/x"), "boot-a", "", shared) !=
              of(nfs("0:50", "filer:/x"), "boot-b", "", shared));
}
END_TEST

START_TEST(of_a_directory_that_file_system_counts_that_holds_it_and_what_lies_below) {
    const std::string all = disk +
                            "40 27 254:1 / /data rw - ext4 /dev/vdb rw\n"
                            "41 40 254:2 / /data/in rw - ext4 /dev/vdc rw\n"
                            "42 27 254:3 / /database rw - ext4 /dev/vdd rw\n";
    ck_assert_text(of(all, "b", "", {"/data"}), "/data here b 65025 /\n/data/in here b 65026 /\n");
    ck_assert_text(of(all, "b", "", {"/data/in/deep", "/home"}),
                   "/ here b 65024 /\n/data/in here b 65026 /\n");
    ck_assert_text(of("", "b", "", {"/data"}), "");
}
END_TEST

START_TEST(names_of_directories_are_absolute) {
    const auto some = directories_of(" /home  /data/ /");
    ck_assert(some && *some == std::vector<std::string>({"/home", "/data", "/"}));
    ck_assert(directories_of("")->empty());
    for (const char* bad : {"home", "/home/../etc", "/home/..", "/./home", "//home"})
        ck_assert(!directories_of(bad));
    ck_assert(lies_below("/home/me", *some) && lies_below("/data", {"/data"}));
    ck_assert(!lies_below("/database", {"/data"}) && !lies_below("/data", {}));
}
END_TEST

START_TEST(a_home_settles_whose_files_a_job_sees) {
    const FilesWish as_auto = *files_wish("auto"), as_home = *files_wish("home");
    ck_assert(!files_wish("mine"));
    const auto chosen = [](FilesWish asked, bool said, FilesWish by_default, bool in_shared) {
        JobSpec spec;
        spec.files = asked.mode;
        spec.files_auto = asked.is_auto;
        spec.file_systems = "not the caller's to say";
        choose_files(spec, said, by_default, in_shared);
        ck_assert(spec.file_systems.empty());
        return FilesWish{spec.files, spec.files_auto};
    };
    ck_assert(chosen({}, false, {}, false) == FilesWish{});
    ck_assert(chosen({}, false, as_home, true) == as_home);
    ck_assert(chosen({}, true, as_home, false) == FilesWish{});  // srun --files=local
    ck_assert(chosen(as_home, true, {}, true) == as_home);
    ck_assert(chosen(as_home, false, {}, false) == as_home);  // of an older srun
    ck_assert(chosen(as_auto, true, {}, false) == as_auto);
    ck_assert(chosen({}, false, as_auto, false) == as_auto);
    const FilesWish checked{FilesMode::local, true};
    ck_assert(chosen(as_auto, true, {}, true) == checked);
    ck_assert(chosen({}, false, as_auto, true) == checked);
}
END_TEST

START_TEST(what_lies_over_a_home_is_what_its_job_asks_for) {
    const auto settled = [](const char* wish, bool in_shared, FilesTmp tmp) {
        JobSpec spec;
        spec.files = files_wish(wish)->mode;
        spec.files_auto = files_wish(wish)->is_auto;
        spec.local_paths = {"/scratch"};
        spec.tmp = FilesTmp::node;  // not the caller's to say
        choose_files(spec, true, {}, in_shared, tmp);
        return spec;
    };
    using Paths = std::vector<std::string>;
    ck_assert(laid_over(settled("home", false, FilesTmp::home)) == Paths{"/scratch"});
    ck_assert(laid_over(settled("home", false, FilesTmp::own)) == Paths({"/scratch", "/tmp"}));
    ck_assert(laid_over(settled("auto", false, FilesTmp::node)) == Paths({"/scratch", "/tmp"}));
    // The job sees all files of its node.
    const JobSpec shared = settled("auto", true, FilesTmp::node);
    ck_assert(laid_over(shared).empty() && shared.local_paths.empty());
    ck_assert(shared.tmp == FilesTmp::home);
    ck_assert(laid_over(settled("local", false, FilesTmp::own)).empty());
    const auto asked = [](FilesTmp wish, FilesMode mode, FilesTmp configured) {
        JobSpec spec;
        spec.files = mode;
        spec.tmp = wish;
        choose_files(spec, true, {}, false, configured);
        return spec.tmp;
    };
    using Tmp = FilesTmp;
    for (const FilesMode mode : {FilesMode::local, FilesMode::home})
        ck_assert(asked(Tmp::own, mode, Tmp::node) == Tmp::own);
    ck_assert(asked(Tmp::shared, FilesMode::home, Tmp::own) == Tmp::home);
    ck_assert(asked(Tmp::shared, FilesMode::home, Tmp::node) == Tmp::node);
    ck_assert(asked(Tmp::shared, FilesMode::local, Tmp::own) == Tmp::home);
    for (const char* good : {"/scratch", "/data/set.1", "/tmpfs", "/running", "/..a"})
        ck_assert_msg(may_lie_over(good), "%s", good);
    for (const char* bad : {"", "/", "scratch", "/scratch/", "//a", "/a/../etc", "/a/..", "/./a",
                            "/a/.", "/proc", "/proc/1", "/tmp", "/tmp/x", "/dev/shm", "/run"})
        ck_assert_msg(!may_lie_over(bad), "%s", bad);
}
END_TEST

START_TEST(a_node_of_an_older_version_is_not_asked_for_what_it_would_leave_out) {
    JobSpec spec;
    spec.files = FilesMode::home;
    ck_assert(not_known(spec, 0).empty());
    spec.local_paths = {"/scratch", "/data"};
    ck_assert(not_known(spec, 0).code == CauseCode::path_not_offered);
    ck_assert(not_known(spec, 0).find("/scratch") != std::string::npos);
    ck_assert(not_known(spec, knows_local_paths).empty());
    spec.files_snapshot = true;
    ck_assert(not_known(spec, knows_local_paths).code == CauseCode::not_carried_out);
    ck_assert(not_known(spec, knows_local_paths | knows_files_snapshot).empty());
    spec.files = FilesMode::local;
    ck_assert(not_known(spec, 0).empty());
    spec.tmp = FilesTmp::own;
    ck_assert(not_known(spec, knows_files_snapshot).code == CauseCode::not_carried_out);
    ck_assert(not_known(spec, knows_own_tmp).empty());
}
END_TEST

}  // namespace

UNIT_SUITE(same_files, nodes_of_one_machine_have_the_same_and_two_machines_do_not,
           a_share_of_one_server_is_the_same_on_two_machines,
           of_a_directory_that_file_system_counts_that_holds_it_and_what_lies_below,
           names_of_directories_are_absolute, a_home_settles_whose_files_a_job_sees,
           what_lies_over_a_home_is_what_its_job_asks_for,
           a_node_of_an_older_version_is_not_asked_for_what_it_would_leave_out);
