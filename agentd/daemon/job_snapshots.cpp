// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/daemon/job_snapshots.hpp"

#include <fcntl.h>

#include <algorithm>
#include <utility>

namespace souk {
namespace {
constexpr Nanos limit = Nanos::from_s(120);
}  // namespace

void JobSnapshots::job(const HomeJob& job) {
    if (!job.spec.files_snapshot) return;
    const bool ended = job.phase == JobPhase::finished;
    const uint64_t keep = ended ? UINT64_MAX : job.checkpoint.epoch.n;
    uint64_t& kept = kept_[job.id];
    const bool news = keep > kept;
    kept = std::max(kept, keep);
    if (!news) return;
    add(job, "drop", name(job.id, keep), [this, id = job.id](const Result<std::string>& done) {
        if (!done)
            log_.limited("snapshots " + id.text(), Loop::now(), Level::info,
                         "older snapshots of a job's files stay",
                         {{"JOB", id.text()}, {"WHY", done.error()}});
    });
}

void JobSnapshots::recovered(const std::map<uint64_t, HomeJob>& jobs) {
    for (const auto& [seq, record] : jobs) job(record);
}

void JobSnapshots::go_back(const HomeJob& job, std::function<void(const std::string&)> done) {
    const Checkpoint& c = job.checkpoint;
    if (job.spec.files != FilesMode::home || c.epoch.n == 0) return done({});
    if (job.spec.files_snapshot)
        return add(job, "put-back", name(job.id, c.epoch.n),
                   [done = std::move(done)](const Result<std::string>& said) {
                       done(said ? *said
                                 : "its files are not put back to what they were then: " +
                                       said.error().message);
                   });
    if (c.began.ns == 0) return done({});
    add(job, "written", name(job.id, static_cast<uint64_t>(c.began.ns)),
        [done = std::move(done)](const Result<std::string>& said) {
            done(said ? *said : std::string());
        });
}

void JobSnapshots::add(const HomeJob& job, std::string what, std::string name,
                       std::function<void(const Result<std::string>&)> done) {
    LaunchSpec user;
    user.uid = job.spec.launch.uid;
    user.gid = job.spec.launch.gid;
    user.groups = job.spec.launch.groups;
    work_.push_back({{std::move(what), std::move(name), job.spec.launch.cwd},
                     std::move(user),
                     std::move(done)});
    if (work_.size() == 1) next();
}

void JobSnapshots::next() {
    if (work_.empty()) return;
    const auto ended = [this](const Result<std::string>& said) {
        const auto done = std::move(work_.front().done);
        work_.pop_front();
        task_.reset();
        done(said);
        next();
    };
    auto root = open_at(AT_FDCWD, "/", O_PATH | O_DIRECTORY);
    const Work& work = work_.front();
    auto task =
        root ? FilesTask::start(loop_, start_, work.words, work.user, root->get(), limit, ended)
             : Result<std::unique_ptr<FilesTask>>(tl::unexpected(root.error()));
    if (task)
        task_ = std::move(*task);
    else
        loop_.defer([ended, why = task.error()] { ended(tl::unexpected(why)); });
}

}  // namespace souk
