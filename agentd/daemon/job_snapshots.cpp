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
    Done done = [this, id = job.id](const Result<std::string>& said) {
        if (!said)
            log_.limited("snapshots " + id.text(), Loop::now(), Level::info,
                         "older snapshots of a job's files stay",
                         {{"JOB", id.text()}, {"WHY", said.error()}});
    };
    const auto user = users_.find(job.spec.launch.uid);
    if (user != users_.end() && user->second.drops.size() >= drops_max &&
        !user->second.drops.contains(job.id))
        return done(fail("too many jobs of its user wait for that"));
    add(&User::drops, job, "drop", keep, std::move(done));
}

void JobSnapshots::recovered(const std::map<uint64_t, HomeJob>& jobs) {
    for (const auto& [seq, record] : jobs) job(record);
}

void JobSnapshots::go_back(const HomeJob& job, std::function<void(const std::string&)> done) {
    const Checkpoint& c = job.checkpoint;
    if (job.spec.files != FilesMode::home || c.epoch.n == 0) return done({});
    if (job.spec.files_snapshot)
        return add(&User::backs, job, "put-back", c.epoch.n,
                   [done = std::move(done)](const Result<std::string>& said) {
                       done(said ? *said
                                 : "its files are not put back to what they were then: " +
                                       said.error().message);
                   });
    if (c.began.ns == 0) return done({});
    add(&User::backs, job, "written", static_cast<uint64_t>(c.began.ns),
        [done = std::move(done)](const Result<std::string>& said) {
            done(said ? *said : std::string());
        });
}

void JobSnapshots::add(std::map<JobId, Work> User::*where, const HomeJob& job, std::string what,
                       uint64_t number, Done done) {
    const LaunchSpec& launch = job.spec.launch;
    LaunchSpec as;
    as.uid = launch.uid;
    as.gid = launch.gid;
    as.groups = launch.groups;
    const bool idle = !users_.contains(launch.uid);
    (users_[launch.uid].*where)[job.id] = {
        {std::move(what), name(job.id, number), launch.cwd}, std::move(as), std::move(done)};
    if (idle) next(launch.uid);
}

// Begins what this user has next; his process is over.
void JobSnapshots::next(uint32_t uid) {
    User& user = users_.at(uid);
    user.task.reset();
    auto& from = user.backs.empty() ? user.drops : user.backs;
    if (from.empty()) return (void)users_.erase(uid);
    const Work work = std::move(from.extract(from.begin()).mapped());
    const auto ended = [this, uid, done = work.done](const Result<std::string>& said) {
        done(said);
        next(uid);
    };
    auto root = open_at(AT_FDCWD, "/", O_PATH | O_DIRECTORY);
    auto task =
        root ? FilesTask::start(loop_, start_, work.words, work.user, root->get(), limit, ended)
             : Result<std::unique_ptr<FilesTask>>(tl::unexpected(root.error()));
    if (task)
        user.task = std::move(*task);
    else
        loop_.defer([ended, why = task.error()] { ended(tl::unexpected(why)); });
}

}  // namespace souk
