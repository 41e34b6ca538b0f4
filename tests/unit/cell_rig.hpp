// SPDX-License-Identifier: GPL-2.0-or-later
// CellNode: a node without an agent, whose cells a test drives effect by effect. Its job prints a
// number for each line that it reads.
#pragma once

#include <signal.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "agentd/cell/cell.hpp"
#include "tests/unit/cgroup_fixture.hpp"
#include "tests/unit/inspect_rig.hpp"
#include "tests/unit/loop_fixture.hpp"
#include "tests/unit/move_rig.hpp"
#include "tests/unit/unit.hpp"

namespace souk::unit {

struct CellNode {
    Loop loop = open_loop();
    Log log{{.level_max = Level::error, .program = "test_cell"}};
    CgroupFixture cgroups;
    CapsuleGroups groups{*cgroups, "n1/jobs", 4};
    TempDir guests, images, ram, work;
    inspect::Inspectors inspectors;
    CellSite site;
    std::vector<Fd> syncers;
    std::map<GuestKey, std::deque<guest::Event>> events;
    std::string output;  // of the job, wherever it runs
    std::deque<Cell> cells;

    explicit CellNode(
        const CgroupLayout& layout = detect_cgroups(*read_file(AT_FDCWD, "/proc/self/mountinfo")),
        inspect::Inspectors::Start start = reads_images())
        : cgroups(layout), inspectors(std::move(start)) {
        OK(inspectors.begin());
        // As an agent that reaps all: a capsule ends only when no CRIU is left in it.
        ::signal(SIGCHLD, [](int) {
            while (::waitpid(-1, nullptr, WNOHANG) > 0) continue;
        });
        site.loop = &loop;
        site.log = &log;
        site.groups = &groups;
        site.guests = guests.path;
        site.images = std::move(*duplicate(images.fd.get()));
        site.ram = std::move(*duplicate(ram.fd.get()));
        site.init_path = souk_init_path();
        site.criu = &test_criu();
        site.inspectors = &inspectors;
        site.machine = std::move(*this_machine("4.2"));
        site.event = [this](const GuestKey& key, guest::Event e) {
            events[key].push_back(std::move(e));
        };
        site.output = [this](const GuestKey&, uint32_t stream, uint64_t offset,
                             std::string_view bytes) {
            if (stream == 1 && offset <= output.size())
                output.replace(offset, std::string::npos, bytes);
            return true;
        };
        site.input_taken = [](const GuestKey&, uint64_t) {};
        site.cgroup_changed = [](const Cgroup&, Nanos, bool) {};
        // its file is written before each move
        site.is_network = [](std::string_view) { return true; };
        site.syncer =
            [this](const Pidfd&) -> Result<Fd> {  // one that has synced all before it is asked
            int ends[2];
            if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
                return fail_errno("socketpair", errno);
            syncers.emplace_back(ends[1]);
            MUST(::write(ends[1], "+", 1) == 1);
            return Fd(ends[0]);
        };
        site.want_pages = [](const GuestKey&, bool, uint64_t, const std::vector<PageRange>&) {};
        site.image_refused = [](const GuestKey&, const std::string&) {};
        site.pages_whole = [](const GuestKey&) {};
        site.pages_refused = [](const GuestKey&, const std::string&) {};
    }
    ~CellNode() {
        for (Cell& c : cells) {
            c.remove();
            await(c, guest::Input::removed);
        }
        ::signal(SIGCHLD, SIG_DFL);
    }

    // before: what its program does first.
    Cell& add(uint64_t epoch, uint32_t uid = 0, const std::string& before = "") {
        GuestJob job;
        job.spec.launch.uid = job.spec.launch.gid = uid;
        job.key = {JobId{"n1", 1}, {epoch}};
        job.spec.launch.uid = job.spec.launch.gid = uid;
        job.spec.launch.path = "/bin/sh";
        job.spec.launch.argv = {"sh", "-c",
                                "exec 9>>" + work.path + "/file; " + before +
                                    "i=0; while read x; do i=$((i + 1)); echo $i; done"};
        job.spec.launch.env = {"PATH=/usr/bin:/bin"};
        job.spec.launch.cwd = "/";
        Cell& c = cells.emplace_back(site, job);
        c.create_capsule();
        await(c, guest::Input::capsule_ready);
        return c;
    }
    Cell& running(const std::string& before = "") {
        Cell& c = add(1, 0, before);
        c.start_job();
        await(c, guest::Input::job_started);
        counts_to(c, 1);
        return c;
    }
    // The next event is of that kind, and its why is returned; but what is told now and then, or
    // once more with a new connection, does not count.
    Trouble await(Cell& c, guest::Input kind) {
        auto& all = events[c.key()];
        const auto came = [&] {
            while (!all.empty() && input_of(all.front()) != kind &&
                   (input_of(all.front()) == guest::Input::movable ||
                    input_of(all.front()) == guest::Input::job_started ||
                    input_of(all.front()) == guest::Input::dump_froze))
                all.pop_front();
            return !all.empty();
        };
        const auto until = loop.run_until(came, limit);
        ck_assert_msg(until.has_value() && *until, "event %d never came", static_cast<int>(kind));
        ck_assert_msg(input_of(all.front()) == kind, "event %d, not %d: %s",
                      static_cast<int>(input_of(all.front())), static_cast<int>(kind),
                      why_of(all.front()).c_str());
        Trouble why = why_of(all.front());
        all.pop_front();
        return why;
    }
    // It reads one more line, and prints this number.
    void counts_to(Cell& c, int number) {
        std::string wanted;
        for (int i = 1; i <= number; ++i) wanted += std::to_string(i) + "\n";
        c.input(2 * (static_cast<uint64_t>(number) - 1), "x\n", false);
        UNTIL(loop, output.size() >= wanted.size());
        ck_assert_text(output, wanted);
    }
    void dumped(Cell& c) {
        c.ready_criu(false, false);
        await(c, guest::Input::criu_ready);
        c.dump(0);
        await(c, guest::Input::dump_froze);
        await(c, guest::Input::dump_held);
    }
    void dumps_to_disk(Cell& c) {
        c.ready_criu(true, false);
        await(c, guest::Input::criu_ready);
        c.dump(0);
    }
    // From now on: how many capsules were made, and what is done before the next one is.
    int made = 0;
    std::function<void()> before_next;
    void watch_capsules() {
        site.make_capsule = [this](const GuestKey&, const CapsuleOptions& how) {
            ++made;
            if (const auto then = std::exchange(before_next, nullptr)) then();
            return Capsule::spawn(how);
        };
    }
    // No trial has left anything beside that cell's, but its image if it has one.
    void is_alone(const Cell& c, bool has_image) {
        const std::string own = c.key().text();
        ck_assert(*list_dir(AT_FDCWD, guests.path) == std::vector<std::string>{own});
        ck_assert(list_dir(AT_FDCWD, ram.path)->empty());
        const auto frozen = *list_dir(AT_FDCWD, images.path);
        ck_assert(frozen ==
                  (has_image ? std::vector<std::string>{own} : std::vector<std::string>{}));
    }
    void undone(Cell& c) {
        c.undo_dump();
        await(c, guest::Input::dump_undone);
    }
    // Its image, as a transfer brings it.
    void ship(const Cell& from, Cell& to) {
        const Fd source = std::move(*from.image()), target = std::move(*to.image());
        const auto names = std::move(*list_dir(source.get(), "."));
        for (const std::string& name : names) {
            const Fd in = std::move(*open_at(source.get(), name, O_RDONLY));
            const Fd out =
                std::move(*open_at(target.get(), name, O_WRONLY | O_CREAT | O_TRUNC, 0600));
            while (::sendfile(out.get(), in.get(), nullptr, 1 << 20) > 0) continue;
        }
        Manifest manifest = from.needs();
        manifest.files = std::move(*digest_files(target.get()));
        OK(to.seal(manifest));
    }
    // `uid`: of the user for whom it is restored.
    Cell& copy_of(Cell& source, uint32_t uid = 0) {
        Cell& copy = add(2, uid);
        copy.ready_criu(false, false);
        await(copy, guest::Input::criu_ready);
        dumped(source);
        ship(source, copy);
        copy.restore();
        return copy;
    }
    Cell& held_copy_of(Cell& source) {
        Cell& copy = copy_of(source);
        await(copy, guest::Input::restore_held);
        return copy;
    }
    std::string directory(const Cell& c) const { return guests.path + "/" + c.key().text(); }
    void kill_criu(const Cell& c) { ck_assert_int_eq(::kill(criu_of(c), SIGKILL), 0); }
    // The CRIU in its capsule: the one process there that is our child, but for PID 1.
    int criu_of(const Cell& c) {
        int init = 0;
        std::vector<int> found;
        ck_assert_int_eq(
            std::sscanf(read_file(AT_FDCWD, directory(c) + "/capsule")->c_str(), "%d", &init), 1);
        const auto names_of = [](const std::string& pid) {
            std::error_code none;
            return std::filesystem::read_symlink("/proc/" + pid + "/ns/pid", none).string();
        };
        const std::string inside = names_of(std::to_string(init));
        const auto pids = std::move(*list_dir(AT_FDCWD, "/proc"));
        for (const std::string& pid : pids) {
            const auto stat = read_proc_stat(AT_FDCWD, "/proc/" + pid);
            if (!stat || pid == std::to_string(init) || names_of(pid) != inside) continue;
            if (stat->parent == ::getpid() && stat->state != 'Z') found.push_back(std::stoi(pid));
        }
        ck_assert_uint_eq(found.size(), 1);
        return found[0];
    }
};

}  // namespace souk::unit
