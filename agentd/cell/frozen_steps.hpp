// SPDX-License-Identifier: GPL-2.0-or-later
// FrozenSteps: what is done to a job's memory and files while it stands frozen and dumped, in
// slices on the loop, which serves others meanwhile: what its processes share copy-on-write goes
// into the image (checkpoint/shared_image.hpp); what it has written to files that other machines
// see is synced, by a process of its own (agentd/files/program/sync.hpp), and is at its home; for
// an image that stays, its memory goes into a file of the image (checkpoint/page_file.hpp). One
// step at a time; each ends with its hook, or with `failed`.
//
// Owned by the Cell, which says which step comes next. What fails: a process that is gone, no room,
// a file server that does not answer.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/page_file.hpp"
#include "checkpoint/shared_image.hpp"
#include "kernel/base/cause.hpp"
#include "kernel/sys/loop/loop.hpp"
#include "kernel/sys/store/network_files.hpp"

namespace souk {

class FrozenSteps {
  public:
    struct Hooks {
        std::function<Result<std::vector<pid_t>>()> pids;
        std::function<void()> shared, flushed;
        std::function<void(const ImageFile& pages)> written;
        std::function<void(const Trouble& why)> failed;
        // Starts who syncs: a stream to it.
        std::function<Result<Fd>()> syncer;
        // Whether all that the job has written is at its home: said once, later. Who drops what is
        // returned hears nothing. Null: its files are not its home's, and nothing is said. What is
        // mapped and has not been written yet is not known there.
        std::function<std::shared_ptr<void>(std::function<void(const Result<AtHome>&)> done)> home;
        OpenProcessFiles open = open_process_files;
    };
    FrozenSteps(Loop& loop, Hooks hooks) : loop_(loop), hooks_(std::move(hooks)) {}

    // While the job runs: where its files may be seen by other machines. A job without such a mount
    // has nothing to be looked at when it stands.
    void look_at_mounts(bool (*is_network)(std::string_view));
    void forget_mounts();

    void share(int image);
    void flush();
    void write(int image, const PageFileWrite::Target& to);
    // How far that is; none: it is not under way.
    struct Progress {
        uint64_t written = 0, bytes = 0;
        Nanos span;  // since it began
    };
    std::optional<Progress> progress(Nanos now) const;
    // Whatever is under way is over; no hook is called.
    void stop();

  private:
    struct Flush {
        Fd syncer;
        Watch watch;
        std::string said;
        std::shared_ptr<void> home;
        Timer limit;
    };
    void share_more();
    void begin_sync(bool mapped_alone);
    Status tell_syncer(bool mapped_alone);
    void hear_syncer();
    void ask_home();
    void fail_flush(const Trouble& why);

    Loop& loop_;
    Hooks hooks_;
    std::set<dev_t> devices_;
    Result<Fd> syncer_ = Fd();  // for devices_; it waits for its words
    std::unique_ptr<SharedImage> sharing_;
    Timer share_timer_;
    std::unique_ptr<Flush> flush_;
    std::unique_ptr<PageFileWrite> writing_;
    Nanos writing_since_;
};

}  // namespace souk
