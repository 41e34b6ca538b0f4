// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/daemon/files_task.hpp"

#include <poll.h>
#include <unistd.h>

#include <cerrno>

namespace souk {
namespace {
constexpr size_t said_max = 4096;
}  // namespace

StartFiles files_starter(root::Helper& root) {
    return {
        [&root](const std::vector<std::string>& words, const std::vector<int>& fds, bool session) {
            return root.program(root::Program::files, words, fds, session);
        },
        root.end()};
}

Result<std::unique_ptr<FilesTask>> FilesTask::start(Loop& loop, const StartFiles& start,
                                                    const FilesTaskWords& words,
                                                    const LaunchSpec& user, int root, Nanos limit,
                                                    Done done) {
    TRY_ASSIGN(Pipe pipe, make_pipe());
    auto task = std::unique_ptr<FilesTask>(new FilesTask(loop, start.end, std::move(done)));
    TRY_ASSIGN(task->process_,
               start({"snapshot", words.what, std::to_string(user.uid), std::to_string(user.gid),
                      group_words(user.groups), words.name, words.directory},
                     {pipe.write_end.get(), root}, true));
    task->answer_ = std::move(pipe.read_end);
    FilesTask* const self = task.get();
    TRY_ASSIGN(task->watch_,
               loop.watch(self->answer_.get(), POLLIN, [self](short) { self->heard(); }));
    task->limit_ = loop.after(limit, [self, limit] {
        self->end(
            fail("it has taken more than " + std::to_string(limit.ns / 1'000'000'000) + " s"));
    });
    return task;
}

FilesTask::~FilesTask() {
    if (process_) kill_(process_);
}

void FilesTask::heard() {
    char bytes[1024];
    const ssize_t n = ::read(answer_.get(), bytes, sizeof bytes);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (n > 0 && said_.size() < said_max) {
        said_.append(bytes, static_cast<size_t>(n));
        return;
    }
    process_ = Pidfd();
    if (said_.starts_with('+')) return end(said_.substr(1));
    end(fail(said_.starts_with('-') ? said_.substr(1) : "its process has ended"));
}

// Not on the stack of the watch, or the timer, which the task owns.
void FilesTask::end(const Result<std::string>& said) {
    watch_.close();
    limit_ = loop_.after(Nanos{}, [done = std::move(done_), said] { done(said); });
}

}  // namespace souk
