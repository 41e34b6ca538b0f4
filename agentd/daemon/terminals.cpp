// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/daemon/terminals.hpp"

#include <algorithm>
#include <cerrno>

#include "agentd/daemon/file_systems.hpp"
#include "kernel/base/cause.hpp"
#include "kernel/base/fields.hpp"

namespace souk {
namespace {

constexpr Nanos disk_retry = Nanos::from_s(1);

// Whether an error that keeps a file from being opened may soon be over.
bool passes(const Error& e) {
    return e.code == EMFILE || e.code == ENFILE || e.code == ENOMEM || e.code == ENOSPC ||
           e.code == EDQUOT;
}

// The byte where the last `lines` lines of what is kept begin; a last line may lack its end. More
// than so much is not looked through: then the lines begin there.
Result<uint64_t> begin_of_last_lines(const Spool& spool, int stream, uint64_t lines) {
    constexpr uint64_t looked_through_max = 4 << 20;
    const uint64_t end = spool.end(stream),
                   least = std::max(spool.begin(stream), end - std::min(end, looked_through_max));
    uint64_t found = 0;
    if (lines == 0) return end;
    for (uint64_t at = end; at > least;) {
        const uint64_t from = at - std::min<uint64_t>(at - least, wire::stdio_bytes_max);
        TRY_ASSIGN(const std::string piece, spool.read(stream, from, at - from));
        for (size_t i = piece.size(); i-- > 0;) {
            const bool last = from + i + 1 == end;
            if (piece[i] == '\n' && !last && ++found == lines) return from + i + 1;
        }
        at = from;
    }
    return least;
}

}  // namespace

Terminals::Terminals(Loop& loop, Fd dir, TerminalBounds bounds, TerminalOutlet outlet)
    : loop_(loop), dir_(std::move(dir)), bounds_(bounds), outlet_(std::move(outlet)) {}

void Terminals::recovered(const std::map<uint64_t, HomeJob>& jobs) {
    for (const auto& [seq, job] : jobs) count(seq, job.spec.launch.uid, dir_.bytes(seq));
}

// -------------------------------------------------------------------------------------------------
// how much is kept

void Terminals::count(uint64_t seq, uint32_t uid, uint64_t bytes) {
    Held& kept = kept_[seq];
    if (kept.bytes > 0 && (kept_of_[kept.uid] -= kept.bytes) == 0) kept_of_.erase(kept.uid);
    kept = {uid, bytes};
    if (bytes == 0)
        kept_.erase(seq);
    else
        kept_of_[uid] += bytes;
}

Status Terminals::user_has_room(uint32_t uid) const {
    const auto kept = kept_of_.find(uid);
    if (uid == 0 || kept == kept_of_.end() || kept->second < bounds_.user_bytes) return {};
    return fail(CauseCode::too_many,
                "output of this user's jobs takes " + std::to_string(kept->second >> 20) +
                    " MB on this node, the most for one user: read it (srun --attach ID)");
}

// The disk is looked at now and then.
Status Terminals::has_room(uint32_t uid) {
    TRY(user_has_room(uid));
    constexpr uint64_t look_bytes = 4 << 20;
    if (disk_has_room_ && taken_ < look_bytes) return {};
    taken_ = 0;
    disk_has_room_ = disk_has_room(dir_.fd(), bounds_.disk_reserve_bytes);
    return disk_has_room_;
}

// -------------------------------------------------------------------------------------------------

Terminals::Job* Terminals::find(const JobId& id) {
    const auto it = jobs_.find(id.seq);
    return it == jobs_.end() ? nullptr : &it->second;
}

Result<Terminals::Job*> Terminals::open(const JobId& id) {
    Job& j = jobs_[id.seq];
    if (!j.spool) {
        TRY_ASSIGN(Spool spool, dir_.open(id.seq));
        j.spool = std::make_unique<Spool>(std::move(spool));
    }
    return &j;
}

Status Terminals::prepare(const JobId& id, bool attach, uint32_t uid) {
    TRY(user_has_room(uid));
    auto opened = open(id);
    if (opened && (*opened)->spool->end(0) + (*opened)->spool->end(1) > 0) {
        erase(id);  // of a job whose record was never written
        opened = open(id);
    }
    if (!opened) {
        erase(id);
        return wrap("its output cannot be kept", opened.error());
    }
    if (!attach) jobs_.erase(id.seq);
    return {};
}

void Terminals::data(const HomeJob& job, const wire::StdioData& data) {
    const int stream = data.stream == wire::Stream::out ? 0 : 1;
    Job& j = jobs_[job.id.seq];
    const Status taken = take(job, j, stream, data);
    if (!taken) return hold_back(job.id, j, stream, data.epoch, taken.error());
    if (std::exchange(j.held[stream], false) && !j.held[1 - stream]) j.retry.cancel();
    outlet_.ack(job,
                {job.id, data.epoch, data.stream, j.spool->end(stream) - job.splice.shift[stream]});
    for (Session& s : j.sessions) pump_session(j, s);
    check_complete(j);
}

Status Terminals::take(const HomeJob& job, Job& j, int stream, const wire::StdioData& data) {
    TRY(open(job.id));
    if (crowded(j, stream)) return fail("its output waits for a terminal");
    TRY(has_room(job.spec.launch.uid));
    TRY(mark(job, j));
    TRY(j.spool->append(stream, data.offset + job.splice.shift[stream], data.data));
    taken_ += data.data.size();
    count(job.id.seq, job.spec.launch.uid, j.spool->bytes());
    return {};
}

// Not acknowledged, so the capsule still has it, and the job blocks once its window is full. It is
// asked for again: when a terminal has made room for it, and whatever else is in the way, after a
// second. (A gap follows what was refused.)
void Terminals::hold_back(const JobId& id, Job& j, int stream, Epoch epoch, const Error& why) {
    if (!std::exchange(j.held[stream], true)) outlet_.trouble(id, why.message);
    j.held_of = epoch;
    const bool for_a_terminal = j.spool && crowded(j, stream);
    if (!for_a_terminal && !j.retry.waiting())
        j.retry = loop_.after(disk_retry, [this, id] { ask_again(id); });
}

void Terminals::ask_again(const JobId& id) {
    Job* j = find(id);
    const HomeJob* job = j ? outlet_.job(id) : nullptr;
    if (!job || job->phase == JobPhase::finished) return;
    j->retry = loop_.after(disk_retry, [this, id] { ask_again(id); });  // until it has come
    Status ready = has_room(job->spec.launch.uid);
    if (ready) {
        const auto opened = open(id);
        ready = opened ? mark(*job, *j) : Status(tl::unexpected(opened.error()));
    }
    if (!ready) return outlet_.trouble(id, ready.error().message);
    // During the last step of a move it may be the new copy's.
    const Epoch epoch =
        job->step == MoveStep::release && j->held_of == job->to_epoch ? job->to_epoch : job->epoch;
    bool waits = false;
    for (int i = 0; i < 2; ++i) {
        if (!j->held[i] || crowded(*j, i)) continue;
        waits = true;
        const auto stream = i == 0 ? wire::Stream::out : wire::Stream::err;
        outlet_.ack(*job, {id, epoch, stream, j->spool->end(i) - job->splice.shift[i], true});
    }
    if (!waits) j->retry.cancel();  // for a terminal to make room
    check_complete(*j);
}

void Terminals::input_taken(const HomeJob& job, const wire::StdioInputAck& ack) {
    Job* j = find(job.id);
    if (!j) j = &jobs_[job.id.seq];
    // More than this no stream has, whatever a guest says it has read.
    const uint64_t offset = std::min(ack.offset + job.splice.input_shift, rule::counter_max);
    if (offset > j->input_base) {
        j->input.erase(0, std::min<uint64_t>(offset - j->input_base, j->input.size()));
        j->input_base = offset;
    }
    for (Session& s : j->sessions) s.session->send(wire::InputAck{j->input_base});
}

// Everything from `skip` bytes after input_base on, in frames of their size.
void Terminals::send_input(const HomeJob& job, const Job& j, size_t skip) {
    do {
        const size_t n = std::min(j.input.size() - skip, wire::stdio_bytes_max);
        const bool last = skip + n == j.input.size();
        outlet_.input(job, {job.id, job.epoch, j.input_base + skip - job.splice.input_shift,
                            j.input.substr(skip, n), last && j.input_eof});
        skip += n;
    } while (skip < j.input.size());
}

void Terminals::send_waiting_input(const HomeJob& job, const Job& j) {
    const bool known = j.input_base >= job.splice.input_shift;  // else its capsule says it first
    if (known && (!j.input.empty() || j.input_eof)) send_input(job, j, 0);
}

void Terminals::resync(const HomeJob& job) {
    Job& j = jobs_[job.id.seq];
    const auto opened = open(job.id);
    const Status ready = opened ? mark(job, j) : Status(tl::unexpected(opened.error()));
    if (!ready)
        for (const int stream : {0, 1}) hold_back(job.id, j, stream, job.epoch, ready.error());
    if (!ready) return;
    for (const int i : {0, 1}) {
        const bool again = j.held[i] && !crowded(j, i);
        const auto stream = i == 0 ? wire::Stream::out : wire::Stream::err;
        outlet_.ack(job, {job.id, job.epoch, stream, j.spool->end(i) - job.splice.shift[i], again});
    }
    send_waiting_input(job, j);
}

bool Terminals::lengths(const JobId& id, uint64_t output_end[2], uint64_t& input_end) {
    const auto opened = open(id);
    if (!opened) return outlet_.trouble(id, opened.error().message), false;
    for (int i = 0; i < 2; ++i) output_end[i] = (*opened)->spool->end(i);
    input_end = (*opened)->input_base;
    return true;
}

void Terminals::splice(const HomeJob& job) {
    if (job.splice.text.empty()) return;
    const auto opened = open(job.id);
    if (!opened) return outlet_.trouble(job.id, opened.error().message);
    if (auto marked = mark(job, **opened); !marked)
        return outlet_.trouble(job.id, marked.error().message);
    pump(job.id);
}

// Its place in the stream says whether it has been written; cut off, the rest of it is.
Status Terminals::mark(const HomeJob& job, Job& j) {
    const Splice& s = job.splice;
    const int stream = job.spec.launch.tty ? 0 : 1;
    if (s.text.empty() || j.spool->end(stream) >= s.at + s.text.size()) return {};
    return j.spool->append(stream, s.at, s.text);
}

bool Terminals::complete(const HomeJob& job, const uint64_t output_end[2],
                         std::function<void()> on_complete) {
    if (output_end[0] == 0 && output_end[1] == 0) return true;
    const JobId& id = job.id;
    const uint64_t end[2] = {output_end[0] + job.splice.shift[0],
                             output_end[1] + job.splice.shift[1]};
    const auto opened = open(id);
    if (!opened && !passes(opened.error())) {
        outlet_.trouble(id, opened.error().message);
        return true;  // it cannot be kept at all: the exit status at least is told
    }
    Job* j = &jobs_[id.seq];
    if (opened && j->spool->end(0) >= end[0] && j->spool->end(1) >= end[1]) return true;
    j->want_end[0] = end[0];
    j->want_end[1] = end[1];
    j->on_complete = std::move(on_complete);
    if (!opened)
        for (const int stream : {0, 1}) hold_back(id, *j, stream, job.epoch, opened.error());
    return false;
}

void Terminals::check_complete(Job& j) {
    if (!j.on_complete || j.spool->end(0) < j.want_end[0] || j.spool->end(1) < j.want_end[1])
        return;
    const auto done = std::exchange(j.on_complete, nullptr);
    done();
}

Result<wire::Attached> Terminals::attach(const HomeJob& job, const wire::Attach& request,
                                         std::shared_ptr<TerminalSession> session) {
    TRY_ASSIGN(Job * j, open(job.id));
    Session s;
    s.session = std::move(session);
    wire::Attached answer;
    answer.id = job.id;
    answer.phase = job.phase;
    answer.tty = job.spec.launch.tty;
    answer.input_offset = j->input_base + j->input.size();
    for (int i = 0; i < 2; ++i) {
        const uint64_t from = request.resume ? request.offset[i] : 0;
        s.sent[i] = answer.offset[i] = std::clamp(from, j->spool->begin(i), j->spool->end(i));
        // until it says so: what it has received may be on its way to a terminal yet
        s.written[i] = j->spool->begin(i);
    }
    s.watch = request.watch;
    j->sessions.push_back(std::move(s));
    return answer;
}

void Terminals::detach(const JobId& id, const TerminalSession* session) {
    Job* j = find(id);
    if (!j) return;
    std::erase_if(j->sessions, [&](const Session& s) { return s.session.get() == session; });
    make_room(id, *j);  // the slowest of them may have left
    if (find(id)) forget_when_idle(id);
}

// A finished job that nobody reads costs neither descriptors nor memory: who attaches opens it, and
// its end is told again. One that has written nothing leaves its files to the next.
void Terminals::forget_when_idle(const JobId& id) {
    const Job& j = jobs_.at(id.seq);
    if (!j.exit || !j.sessions.empty() || j.on_complete) return;
    const bool silent = j.spool->end(0) == 0 && j.spool->end(1) == 0;
    jobs_.erase(id.seq);
    if (silent) dir_.remove(id.seq);
}

void Terminals::pump(const JobId& id) {
    Job* j = find(id);
    if (!j) return;
    for (Session& s : j->sessions) {
        s.full = false;
        pump_session(*j, s);
    }
}

void Terminals::pump_session(Job& j, Session& s) {
    for (int i = 0; i < 2 && !s.watch; ++i) {
        while (!s.full && s.sent[i] < j.spool->end(i)) {
            auto bytes = j.spool->read(i, s.sent[i], wire::stdio_bytes_max);
            if (!bytes || bytes->empty()) return;
            const uint64_t size = bytes->size();
            if (!s.session->send(wire::Output{i == 0 ? wire::Stream::out : wire::Stream::err,
                                              s.sent[i], std::move(*bytes)})) {
                s.full = true;
                return;
            }
            s.sent[i] += size;
        }
    }
    const bool has_all = s.watch || (s.sent[0] >= j.spool->end(0) && s.sent[1] >= j.spool->end(1));
    if (s.full || s.done || !j.exit || !has_all) return;
    s.done = true;
    s.session->send(*j.exit);  // its end comes back as detach(), which closes the files
}

void Terminals::output_written(const JobId& id, const TerminalSession* session,
                               const wire::OutputAck& ack) {
    Job* j = find(id);
    if (!j || !j->spool) return;
    const int i = ack.stream == wire::Stream::out ? 0 : 1;
    for (Session& s : j->sessions)
        if (s.session.get() == session && ack.offset <= s.sent[i])
            s.written[i] = std::max(s.written[i], ack.offset);
    make_room(id, *j);
    pump(id);  // what it has written makes room for more
}

// How far the files of its user are: nothing behind that is forgotten while nobody writes them.
void Terminals::keep_for_files(const JobId& id, const Job& j, uint64_t kept[2]) const {
    const HomeJob* job = outlet_.job(id);
    if (!job || !has_output_files(*job)) return;
    const auto writes = [](const Session& s) { return s.session->writes_files(); };
    if (std::ranges::any_of(j.sessions, writes)) return;
    kept[0] = kept[1] = 0;
    dir_.read_written(id.seq, kept);
}

// Forgets what every attached terminal has written, and asks then for output that was held back for
// want of room.
void Terminals::make_room(const JobId& id, Job& j) {
    if (std::ranges::all_of(j.sessions, &Session::watch)) return;
    bool room = false;
    uint64_t kept[2] = {UINT64_MAX, UINT64_MAX};
    keep_for_files(id, j, kept);
    for (const int i : {0, 1}) {
        uint64_t least = kept[i];
        for (const Session& s : j.sessions)
            if (!s.watch) least = std::min(least, s.written[i]);
        const bool waited = j.held[i] && crowded(j, i);
        j.spool->forget_before(i, least);
        room |= waited && !crowded(j, i);
    }
    if (const auto known = kept_.find(id.seq); known != kept_.end())
        count(id.seq, known->second.uid, j.spool->bytes());
    if (room) ask_again(id);
}

bool Terminals::crowded(const Job& j, int stream) const {
    return j.spool->end(stream) - j.spool->begin(stream) >= bounds_.stream_bytes;
}

void Terminals::input(const HomeJob& job, const wire::Input& input) {
    Job& j = jobs_[job.id.seq];
    const uint64_t have = j.input_base + j.input.size();
    // a gap: the sender starts again from what was acknowledged
    if (input.offset > have || j.input_eof) return;
    const uint64_t known = have - input.offset;
    if (known < input.data.size() || input.eof) {
        std::string_view fresh = input.data;
        fresh.remove_prefix(std::min<uint64_t>(known, fresh.size()));
        fresh = fresh.substr(
            0, wire::input_room_bytes - std::min(wire::input_room_bytes, j.input.size()));
        const size_t before = j.input.size();
        j.input += fresh;
        j.input_eof =
            input.eof && j.input_base + j.input.size() == input.offset + input.data.size();
        if (job.phase == JobPhase::running && j.input_base >= job.splice.input_shift)
            send_input(job, j, before);
    }
}

void Terminals::winch(const HomeJob& job, const wire::Winch& winch) {
    if (job.phase == JobPhase::running)
        outlet_.winch(job, {job.id, job.epoch, winch.rows, winch.cols});
}

void Terminals::tell(const JobId& id, const wire::Notice& notice) {
    if (Job* j = find(id))
        for (Session& s : j->sessions) s.session->send(notice);
}

bool Terminals::attended(const JobId& id) const {
    const auto it = jobs_.find(id.seq);
    return it != jobs_.end() && !it->second.sessions.empty();
}

bool Terminals::has_unwritten(const JobId& id) {
    const bool known = jobs_.contains(id.seq);
    const auto opened = open(id);
    uint64_t written[2] = {0, 0};
    dir_.read_written(id.seq, written);
    bool unwritten = false;
    for (const int i : {0, 1}) unwritten |= opened && written[i] < (*opened)->spool->end(i);
    if (!known) jobs_.erase(id.seq);
    return unwritten;
}

Result<Terminals::Kept> Terminals::peek(const HomeJob& job, int stream, uint64_t from,
                                        std::optional<uint64_t> lines) {
    const bool known = jobs_.contains(job.id.seq);
    const auto opened = open(job.id);
    if (!opened) {
        if (!known) jobs_.erase(job.id.seq);
        return tl::unexpected(opened.error());
    }
    const Spool& spool = *(*opened)->spool;
    Kept kept{spool.begin(stream), 0, spool.end(stream), {}};
    const bool silent = spool.end(0) == 0 && spool.end(1) == 0;
    kept.from = std::clamp(from, kept.begin, kept.end);
    Status read;
    if (lines) {
        auto last = begin_of_last_lines(spool, stream, *lines);
        if (last)
            kept.from = *last;
        else
            read = tl::unexpected(last.error());
    }
    if (read) {
        auto bytes = spool.read(stream, kept.from, wire::stdio_bytes_max);
        if (bytes)
            kept.bytes = std::move(*bytes);
        else
            read = tl::unexpected(bytes.error());
    }
    if (!known) jobs_.erase(job.id.seq);
    if (!known && silent && job.phase == JobPhase::finished) dir_.remove(job.id.seq);
    TRY(read);
    return kept;
}

// A cost that grows by the price is no news; a terminal adds it up by itself.
void Terminals::meter(const JobId& id, const wire::Meter& meter) {
    Job* j = find(id);
    if (!j || j->sessions.empty()) return;
    wire::Meter known = j->meter;
    if (meter.counts) known.cost = meter.cost;
    if (meter == known) return;
    j->meter = meter;
    for (Session& s : j->sessions) s.session->send(meter);
}

void Terminals::finished(const JobId& id, wire::Exit exit) {
    const auto opened = open(id);
    if (!opened) return outlet_.trouble(id, opened.error().message);
    Job& j = **opened;
    j.exit = std::make_unique<wire::Exit>(std::move(exit));
    j.input.clear();
    j.retry.cancel();
    for (size_t i = 0; i < j.sessions.size(); ++i) pump_session(j, j.sessions[i]);
    forget_when_idle(id);
}

void Terminals::erase(const JobId& id) {
    jobs_.erase(id.seq);
    count(id.seq, 0, 0);
    dir_.remove(id.seq);
}

}  // namespace souk
