// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/daemon/output_files.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace souk {
namespace {

// Processes at once, in all and of one user; other jobs' output waits in its spool.
constexpr size_t writers_max = 1024, users_writers_max = 768;
constexpr Nanos writer_pause_min = Nanos::from_s(1), writer_pause_max = Nanos::from_s(60);
constexpr int failures_max = 10;  // of a job that has finished; its output stays for srun --attach

}  // namespace

// One process, as Terminals sees it: it takes the next piece when it has written the last.
class OutputFiles::Writer : public TerminalSession {
  public:
    Writer(OutputFiles& owner, JobId id) : owner_(owner), id_(std::move(id)) {}

    Status open(const HomeJob& job) {
        int pair[2];
        if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
            return fail_errno("socketpair", errno);
        socket_ = Fd(pair[0]);
        const Fd theirs(pair[1]);
        TRY_ASSIGN(const Fd note, owner_.terminals_.written_note(id_));
        const LaunchSpec& launch = job.spec.launch;
        user_ = launch.uid;
        TRY_ASSIGN(process_, owner_.host_.start(
                                 {"append", std::to_string(launch.uid), std::to_string(launch.gid),
                                  group_words(launch.groups), std::to_string(launch.umask),
                                  launch.cwd, job.out_file, job.err_file},
                                 {theirs.get(), note.get()}, true));
        TRY_ASSIGN(watch_, owner_.loop_.watch(socket_.get(), POLLIN, [this](short) { heard(); }));
        return {};
    }

    bool send(const wire::Output& output) override {
        if (busy_) return false;
        const uint64_t end = output.offset + output.data.size();
        std::string packet(reinterpret_cast<const char*>(&end), sizeof end);
        packet += static_cast<char>(output.stream);
        packet += output.data;
        const ssize_t n =
            ::send(socket_.get(), packet.data(), packet.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0) {
            cannot_send(errno);
            return false;
        }
        busy_ = true;
        sent_ = {output.stream, end};
        return true;
    }
    void send(const wire::InputAck&) override {}
    void send(const wire::Notice&) override {}
    void send(const wire::Meter&) override {}
    void send(const wire::Exit&) override {
        exit_ = true;
        if (!busy_) leave();
    }
    bool writes_files() const override { return true; }
    uint32_t user() const { return user_; }

  private:
    void heard() {
        char packet[512];
        const ssize_t n = ::recv(socket_.get(), packet, sizeof packet, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
        const std::string_view told(packet, n > 0 ? static_cast<size_t>(n) : 0);
        wire::Attach from;
        from.id = id_;
        from.resume = true;
        if (told.size() != 1 + sizeof from.offset || told[0] != 'w')
            return owner_.failed(
                id_, told.starts_with('e') ? std::string(told.substr(1)) : "its process has ended");
        busy_ = false;
        owner_.jobs_.at(id_).failed = 0;
        if (sent_.offset == 0) {  // it has opened the files
            std::memcpy(from.offset, told.data() + 1, sizeof from.offset);
            return owner_.ready(from);
        }
        if (exit_) leave();
        owner_.terminals_.output_written(id_, this, sent_);  // and the next piece comes
    }
    // It would never be asked again: another is begun. Not at once, as below.
    void cannot_send(int code) {
        const std::string why = fail_errno("give it to its writer", code).value().message;
        owner_.loop_.defer([&owner = owner_, id = id_, self = this, why] {
            const auto it = owner.jobs_.find(id);
            if (it != owner.jobs_.end() && it->second.writer.get() == self) owner.failed(id, why);
        });
    }
    // Not at once: the caller goes through its sessions.
    void leave() {
        owner_.loop_.defer([&owner = owner_, id = id_] { owner.done(id); });
    }

    OutputFiles& owner_;
    JobId id_;
    uint32_t user_ = 0;
    Fd socket_;
    Pidfd process_;
    Watch watch_;
    bool busy_ = true;  // until it has opened the files
    bool exit_ = false;
    wire::OutputAck sent_;
};

OutputFiles::OutputFiles(Loop& loop, Log& log, Terminals& terminals, Host host)
    : loop_(loop), log_(log), terminals_(terminals), host_(std::move(host)) {}
OutputFiles::~OutputFiles() = default;

void OutputFiles::job(const HomeJob& job) {
    if (!has_output_files(job) || job.phase == JobPhase::waiting || jobs_.contains(job.id)) return;
    host_.after_commit([this, id = job.id] { consider(id); });
}

void OutputFiles::recovered(const std::map<uint64_t, HomeJob>& jobs) {
    for (const auto& [seq, record] : jobs)
        if (has_output_files(record) && record.phase != JobPhase::waiting) consider(record.id);
}

void OutputFiles::consider(const JobId& id) {
    const HomeJob* record = host_.job(id);
    if (!record || jobs_.contains(id)) return;
    if (record->phase == JobPhase::finished && !terminals_.has_unwritten(id)) return;
    jobs_[id];
    start(id);
}

void OutputFiles::start(const JobId& id) {
    const auto it = jobs_.find(id);
    const HomeJob* record = host_.job(id);
    if (it == jobs_.end() || it->second.writer) return;
    if (!record) return (void)jobs_.erase(it);
    if (!has_place(record->spec.launch.uid)) return;
    auto writer = std::make_shared<Writer>(*this, id);
    if (const Status opened = writer->open(*record); !opened)
        return failed(id, opened.error().message);
    it->second.writer = std::move(writer);
    ++writers_;
    ++of_user_[record->spec.launch.uid];
}

bool OutputFiles::has_place(uint32_t user) const {
    const auto own = of_user_.find(user);
    return writers_ < writers_max && (own == of_user_.end() || own->second < users_writers_max);
}

void OutputFiles::leaves(const Writer& writer) {
    --writers_;
    const auto own = of_user_.find(writer.user());
    if (--own->second == 0) of_user_.erase(own);
}

// Its files are open, and say from where on output is wanted.
void OutputFiles::ready(const wire::Attach& from) {
    const HomeJob* record = host_.job(from.id);
    const auto writer = jobs_.at(from.id).writer;
    if (!record) return forget(from.id);
    const auto attached = terminals_.attach(*record, from, writer);
    if (!attached) return failed(from.id, attached.error().message);
    terminals_.pump(from.id);
    if (record->phase == JobPhase::finished) host_.attached_to_finished(from.id);
}

void OutputFiles::failed(const JobId& id, const std::string& why) {
    const auto it = jobs_.find(id);
    if (it == jobs_.end()) return;
    Entry& entry = it->second;
    log_.limited("output files " + id.text(), Loop::now(), Level::warning,
                 "a job's output is not written into its file", {{"JOB", id.text()}, {"WHY", why}});
    const auto writer = std::exchange(entry.writer, nullptr);
    if (writer) leaves(*writer);
    entry.pause = std::clamp(Nanos{entry.pause.ns * 2}, writer_pause_min, writer_pause_max);
    const HomeJob* record = host_.job(id);
    const bool over = !record || record->phase == JobPhase::finished;
    if (over && ++entry.failed >= failures_max)
        jobs_.erase(it);
    else
        entry.retry = loop_.after(entry.pause, [this, id] { start(id); });
    // It may be its own callback, or within its session's.
    loop_.defer([this, id, writer] {
        if (writer) terminals_.detach(id, writer.get());
        next();
    });
}

void OutputFiles::done(const JobId& id) {
    const auto it = jobs_.find(id);
    if (it == jobs_.end()) return;
    const auto writer = std::exchange(it->second.writer, nullptr);
    jobs_.erase(it);
    if (!writer) return;
    leaves(*writer);
    terminals_.detach(id, writer.get());
    next();
}

void OutputFiles::forget(const JobId& id) {
    loop_.defer([this, id] { done(id); });
}

// Whose turn it is, where there was none.
void OutputFiles::next() {
    for (auto& [id, entry] : jobs_) {
        const HomeJob* record = host_.job(id);
        if (entry.writer || entry.retry.waiting()) continue;
        if (!record || has_place(record->spec.launch.uid)) return start(id);
    }
}

}  // namespace souk
