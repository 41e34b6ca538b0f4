// SPDX-License-Identifier: GPL-2.0-or-later
// The stdio of home jobs: Terminals and OutputAcks as they are, with a capsule and terminals in
// place of souk-init and srun. Output that was held back, for whatever reason, always comes once
// the reason is gone: a property, over random slow readers, full disks, lost descriptors and broken
// connections.
#include "agentd/daemon/terminals.hpp"

#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <list>

#include "agentd/cell/output_acks.hpp"
#include "tests/unit/loop_fixture.hpp"
#include "tests/unit/temp_dir.hpp"
#include "tests/unit/unit.hpp"

namespace souk::unit {
namespace {

constexpr uint64_t window = 256 * 1024, output_max = 1 << 20;

// Byte N of any stream.
char byte_at(uint64_t n) { return static_cast<char>((n * 2654435761u) >> 13); }

std::string bytes_at(uint64_t from, uint64_t n) {
    std::string bytes(n, '\0');
    for (uint64_t i = 0; i < n; ++i) bytes[i] = byte_at(from + i);
    return bytes;
}

// Plays souk-init and the job in it, behind a Cell: it sends each byte once, keeps those that are
// not acknowledged, and makes no more than fits its window.
struct Capsule {
    OutputAcks acks;
    uint64_t base[2] = {0, 0}, sent[2] = {0, 0}, end[2] = {0, 0};
    std::deque<wire::StdioData> on_the_way;
    std::deque<wire::StdioAck> answers;

    uint64_t made(int i) const { return std::min(end[i], base[i] + window); }
    void send(const HomeJob& job, Rng& rng) {
        for (const int i : {0, 1})
            while (sent[i] < made(i)) {
                const uint64_t n = std::min(made(i) - sent[i], 1 + rng.below(64 * 1024));
                on_the_way.push_back({job.id, job.epoch,
                                      i == 0 ? wire::Stream::out : wire::Stream::err, sent[i],
                                      bytes_at(sent[i], n)});
                sent[i] += n;
            }
    }
    void again() {
        acks.asked();
        for (const int i : {0, 1}) base[i] = sent[i] = std::max(base[i], acks.safe_to(i));
    }
    void take(const wire::StdioAck& ack) {
        const auto tell = acks.ack(static_cast<uint32_t>(ack.stream), ack.offset, ack.again);
        if (tell == OutputAcks::Tell::all_again) return again();
        const int i = ack.stream == wire::Stream::out ? 0 : 1;
        base[i] = std::max(base[i], acks.safe_to(i));
    }
};

struct Reader : TerminalSession {
    struct Stream {
        uint64_t at = 0;
        uint64_t unread = 0;  // received, not yet written
        bool acknowledged = true;
    } streams[2];
    bool right = true, ended = false;
    size_t room = 200'000;

    uint64_t unread() const { return streams[0].unread + streams[1].unread; }
    bool send(const wire::Output& o) override {
        if (unread() + o.data.size() > room) return false;
        Stream& s = streams[o.stream == wire::Stream::out ? 0 : 1];
        right &= o.offset == s.at && o.data == bytes_at(o.offset, o.data.size());
        s.at += o.data.size();
        s.unread += o.data.size();
        return true;
    }
    void send(const wire::InputAck&) override {}
    void send(const wire::Notice&) override {}
    void send(const wire::Meter& told) override { meters.push_back(told); }
    std::vector<wire::Meter> meters;
    void send(const wire::Exit&) override { ended = true; }
};

struct Running {
    HomeJob job;
    Capsule capsule;
    std::list<std::shared_ptr<Reader>> readers;
    bool complete = false;
};

struct Home {
    Loop loop = open_loop();
    TempDir dir;
    std::map<uint64_t, Running> jobs;
    Terminals terminals{
        loop, std::move(*duplicate(dir.fd.get())), {.stream_bytes = output_max}, outlet()};

    TerminalOutlet outlet() {
        TerminalOutlet o;
        o.job = [this](const JobId& id) {
            return jobs.contains(id.seq) ? &jobs.at(id.seq).job : nullptr;
        };
        o.ack = [this](const HomeJob& job, const wire::StdioAck& ack) {
            jobs.at(job.id.seq).capsule.answers.push_back(ack);
        };
        o.input = [](const HomeJob&, const wire::StdioInput&) {};
        o.winch = [](const HomeJob&, const wire::StdioWinch&) {};
        o.trouble = [](const JobId&, const std::string&) {};
        return o;
    }
    Running& add(uint64_t seq, uint64_t out, uint64_t err) {
        Running& r = jobs[seq];
        r.job.id = JobId{"n1", seq};
        r.job.epoch = {1};
        r.job.phase = JobPhase::running;
        r.capsule.end[0] = out;
        r.capsule.end[1] = err;
        return r;
    }
    std::shared_ptr<Reader> attach(Running& r, bool watch = false) {
        auto reader = std::make_shared<Reader>();
        wire::Attach request;
        request.id = r.job.id;
        request.watch = watch;
        const auto answer = terminals.attach(r.job, request, reader);
        if (!answer) return nullptr;  // no descriptor for its spool now
        for (const int i : {0, 1}) reader->streams[i].at = answer->offset[i];
        r.readers.push_back(reader);
        terminals.pump(r.job.id);
        return reader;
    }
    void detach(Running& r, const std::shared_ptr<Reader>& reader) {
        const std::shared_ptr<Reader> held = reader;  // which may be that of the list
        r.readers.remove(held);
        terminals.detach(r.job.id, held.get());
    }
    // The reader has written the bytes that it had received.
    void write(Running& r, Reader& reader) {
        for (const int i : {0, 1}) {
            reader.streams[i].unread = 0;
            terminals.output_written(
                r.job.id, &reader,
                {i == 0 ? wire::Stream::out : wire::Stream::err, reader.streams[i].at});
        }
    }
    // Carries everything that is under way in both directions, once.
    void carry(Running& r, Rng& rng) {
        r.capsule.send(r.job, rng);
        for (const auto& data : std::exchange(r.capsule.on_the_way, {}))
            terminals.data(r.job, data);
        for (const auto& ack : std::exchange(r.capsule.answers, {})) r.capsule.take(ack);
        if (r.complete || r.capsule.sent[0] < r.capsule.end[0] ||
            r.capsule.sent[1] < r.capsule.end[1])
            return;
        r.complete |= terminals.complete(r.job, r.capsule.end, [&r] { r.complete = true; });
    }
    // The connection between the two breaks, and is made again.
    void break_link(Running& r) {
        r.capsule.on_the_way.clear();
        r.capsule.answers.clear();
        r.capsule.again();
        terminals.resync(r.job);
    }
    void turn() {
        const auto done = loop.run_until([] { return false; }, Nanos::from_ms(1));
        ck_assert(done.has_value());
    }
};

// Files of the tests cannot grow past so many bytes: what a full disk does to a spool.
struct FullDisk {
    explicit FullDisk(rlim_t bytes) {
        ::signal(SIGXFSZ, SIG_IGN);
        ck_assert_int_eq(::getrlimit(RLIMIT_FSIZE, &before), 0);
        const struct rlimit small { bytes, before.rlim_max };
        ck_assert_int_eq(::setrlimit(RLIMIT_FSIZE, &small), 0);
    }
    ~FullDisk() { ::setrlimit(RLIMIT_FSIZE, &before); }
    struct rlimit before;
};

struct NoDescriptors {
    NoDescriptors() {
        ck_assert_int_eq(::getrlimit(RLIMIT_NOFILE, &before), 0);
        const struct rlimit none { 0, before.rlim_max };
        ck_assert_int_eq(::setrlimit(RLIMIT_NOFILE, &none), 0);
    }
    ~NoDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before); }
    struct rlimit before;
};

START_TEST(what_a_slow_terminal_held_back_comes_when_it_has_read) {
    Home h;
    Rng rng(1);
    Running& r = h.add(1, 20 << 20, 0);
    const auto reader = h.attach(r);
    for (int i = 0; i < 40; ++i) h.carry(r, rng);
    ck_assert_uint_lt(r.capsule.base[0], 2 << 20);  // it stands: the terminal has read nothing
    for (int i = 0; i < 2'000 && reader->streams[0].at < r.capsule.end[0]; ++i) {
        h.write(r, *reader);
        h.carry(r, rng);
    }
    ck_assert(reader->right && r.complete);
    ck_assert_uint_eq(reader->streams[0].at, 20 << 20);
}
END_TEST

START_TEST(the_slowest_of_two_terminals_holds_nothing_back_once_it_has_left) {
    Home h;
    Rng rng(2);
    Running& r = h.add(1, 8 << 20, 0);
    const auto slow = h.attach(r), quick = h.attach(r);
    uint64_t before = 1;
    while (std::exchange(before, quick->streams[0].at) != quick->streams[0].at) {
        h.carry(r, rng);
        h.write(r, *quick);
    }
    ck_assert_uint_lt(quick->streams[0].at, 8 << 20);
    h.detach(r, slow);                            // and `quick` has nothing more to say of its own
    for (int i = 0; i < 2; ++i) h.carry(r, rng);  // the question, then the answer
    ck_assert_uint_gt(quick->streams[0].at, before);
    for (int i = 0; i < 2'000 && !r.complete; ++i) {
        h.write(r, *quick);
        h.carry(r, rng);
    }
    ck_assert(quick->right && r.complete);
}
END_TEST

START_TEST(who_watches_hears_the_end_and_takes_no_output) {
    Home h;
    Rng rng(2);
    Running& r = h.add(1, 8 << 20, 0);
    const auto watcher = h.attach(r, true), reader = h.attach(r);
    for (int i = 0; i < 2'000 && !r.complete; ++i) {  // it holds nothing back
        h.write(r, *reader);
        h.carry(r, rng);
    }
    ck_assert(r.complete && reader->right);
    h.detach(r, reader);
    const auto second = h.attach(r);  // what was not written yet is there for another
    h.terminals.finished(r.job.id, {});
    ck_assert(watcher->ended && watcher->streams[0].unread == 0);
    while (second->streams[0].unread > 0) h.write(r, *second);
    ck_assert(second->ended);
    // The home keeps a note of the files that it writes for a job.
    ck_assert(h.terminals.has_unwritten(r.job.id));
    const uint64_t all[2] = {8 << 20, 0};
    const auto note = h.terminals.written_note(r.job.id);
    ck_assert(note && ::pwrite(note->get(), all, sizeof all, 0) == sizeof all);
    ck_assert(!h.terminals.has_unwritten(r.job.id));
}
END_TEST

// The process that writes the user's files is away for now, because there is no room or a FIFO has
// no reader.
START_TEST(a_terminal_that_runs_ahead_leaves_no_hole_in_its_users_files) {
    struct Writer : Reader {
        bool writes_files() const override { return true; }
    };
    Home h;
    Rng rng(3);
    Running& r = h.add(1, 3 * output_max / 4, 0);
    r.job.out_file = "out";
    const auto reader = h.attach(r);
    for (int i = 0; i < 2'000 && !r.complete; ++i) {
        h.write(r, *reader);
        h.carry(r, rng);
    }
    ck_assert(r.complete && reader->right);
    constexpr uint64_t noted[2] = {100'000, 0};
    const auto note = h.terminals.written_note(r.job.id);
    ck_assert(note && ::pwrite(note->get(), noted, sizeof noted, 0) == sizeof noted);
    h.write(r, *reader);
    const auto writer = std::make_shared<Writer>();
    wire::Attach from;
    from.id = r.job.id;
    from.resume = true;
    from.offset[0] = noted[0];
    const auto answer = h.terminals.attach(r.job, from, writer);
    ck_assert(answer && answer->offset[0] == noted[0]);  // not as far as the terminal is
    writer->streams[0].at = noted[0];
    r.readers.push_back(writer);
    h.terminals.pump(r.job.id);
    while (writer->streams[0].unread > 0) h.write(r, *writer);
    ck_assert(writer->right);
    ck_assert_uint_eq(writer->streams[0].at, 3 * output_max / 4);
}
END_TEST

START_TEST(a_cost_that_grows_by_the_price_is_told_once) {
    Home h;
    Running& r = h.add(1, 0, 0);
    const auto reader = h.attach(r);
    wire::Meter m{JobPhase::running, "n1", Money::units(12), Money{100}, 2, true};
    h.terminals.meter(r.job.id, m);
    m.cost = Money{200};
    h.terminals.meter(r.job.id, m);
    ck_assert_uint_eq(reader->meters.size(), 1);
    m.price = Money::units(13);
    h.terminals.meter(r.job.id, m);
    m = {JobPhase::frozen, "n1", Money{}, Money{300}, 2, false};
    h.terminals.meter(r.job.id, m);
    m.cost = Money{301};  // the market's word of what it was
    h.terminals.meter(r.job.id, m);
    ck_assert_uint_eq(reader->meters.size(), 4);
    ck_assert(reader->meters.back() == m);
}
END_TEST

START_TEST(what_a_full_disk_held_back_comes_when_there_is_room) {
    Home h;
    Rng rng(3);
    Running& r = h.add(1, 700'000, 300'000);
    {
        const FullDisk full(100'000);
        for (int i = 0; i < 20; ++i) h.carry(r, rng);
        ck_assert_uint_le(r.capsule.base[0], 100'000);
    }
    for (const Nanos end = Loop::now() + limit; !r.complete && Loop::now() < end;) {
        h.carry(r, rng);
        h.turn();
    }
    ck_assert(r.complete);
    const auto reader = h.attach(r);
    while (reader->streams[0].at + reader->streams[1].at < 1'000'000) h.write(r, *reader);
    ck_assert(reader->right);
}
END_TEST

START_TEST(what_came_when_no_descriptor_was_left_comes_again_and_the_end_waits_for_it) {
    Home h;
    Rng rng(4);
    Running& r = h.add(1, 5'000, 0);
    {
        const NoDescriptors none;
        h.carry(r, rng);
        ck_assert(!r.complete);
    }
    for (const Nanos end = Loop::now() + limit; !r.complete && Loop::now() < end;) {
        h.carry(r, rng);
        h.turn();
    }
    ck_assert(r.complete);
    ck_assert_uint_eq(h.attach(r)->streams[0].at, 5'000);
}
END_TEST

START_TEST(a_job_that_cannot_have_its_spool_is_known_before_it_is_durable_and_leaves_nothing) {
    Home h;
    const JobId id{"n1", 7};
    {
        const NoDescriptors none;
        const auto made = h.terminals.prepare(id, true, 1000);
        ck_assert(!made);
        ck_assert_text(made.error().message,
                       "its output cannot be kept: 7.out: Too many open files");
    }
    ck_assert_int_eq(::faccessat(h.dir.fd.get(), "7.out", F_OK, 0), -1);
    h.dir.write("7.out", "of another job, whose record was never written");
    OK(h.terminals.prepare(id, false, 1000));
    ck_assert_uint_eq(std::filesystem::file_size(h.dir.path + "/7.out"), 0);
    ck_assert_uint_eq(std::filesystem::file_size(h.dir.path + "/7.err"), 0);
}
END_TEST

// Forty jobs at once, each with terminals that come, read at random, stop and go; all of them meet
// full disks, lost descriptors and broken connections. Then nothing is in the way any more, and
// each byte has to come, in its place.
void held_back_output_comes(uint64_t seed) {
    Home h;
    Rng rng(seed);
    bool right = true;
    for (uint64_t seq = 1; seq <= 40; ++seq) h.add(seq, rng.below(3 << 20), rng.below(2 << 20));
    for (int round = 0; round < 30; ++round) {
        std::optional<FullDisk> full;
        std::optional<NoDescriptors> none;
        if (rng.below(3) == 0) full.emplace(rng.below(2 << 20));
        if (rng.below(5) == 0) none.emplace();
        for (auto& [seq, r] : h.jobs) {
            if (rng.below(6) == 0) h.break_link(r);
            if (rng.below(8) == 0 && r.readers.size() < 3) (void)h.attach(r);
            for (const auto& reader : r.readers)
                if (rng.below(3) == 0) h.write(r, *reader);
            if (!r.readers.empty() && rng.below(8) == 0) {
                right &= r.readers.front()->right;
                h.detach(r, r.readers.front());
            }
            if (rng.below(2) == 0) h.carry(r, rng);
        }
        none.reset();
        h.turn();
    }
    for (auto& [seq, r] : h.jobs) {
        while (r.readers.size() > 1) h.detach(r, r.readers.front());
        if (r.readers.empty()) (void)h.attach(r);
    }
    const auto whole = [&](const Running& r) {
        return r.complete && r.readers.front()->streams[0].at == r.capsule.end[0] &&
               r.readers.front()->streams[1].at == r.capsule.end[1];
    };
    bool all = false;
    for (const Nanos end = Loop::now() + limit; !all && Loop::now() < end;) {
        all = true;
        for (auto& [seq, r] : h.jobs) {
            h.carry(r, rng);
            h.write(r, *r.readers.front());
            right &= r.readers.front()->right;
            all &= whole(r);
        }
        h.turn();
    }
    for (auto& [seq, r] : h.jobs)
        ck_assert_msg(whole(r), "seed %llu, job %llu: %llu of %llu and %llu of %llu bytes came",
                      (unsigned long long)seed, (unsigned long long)seq,
                      (unsigned long long)r.readers.front()->streams[0].at,
                      (unsigned long long)r.capsule.end[0],
                      (unsigned long long)r.readers.front()->streams[1].at,
                      (unsigned long long)r.capsule.end[1]);
    ck_assert(right);
}

START_TEST(held_back_output_always_comes) {
    for (uint64_t seed = 1; seed <= 6; ++seed) held_back_output_comes(seed);
}
END_TEST

START_TEST(output_of_a_users_jobs_takes_a_share_of_the_disk_and_gives_it_back) {
    TempDir dir;
    Loop loop = open_loop();
    std::map<uint64_t, HomeJob> jobs;
    std::vector<wire::StdioAck> acks;
    TerminalOutlet o;
    o.job = [&](const JobId& id) { return &jobs.at(id.seq); };
    o.ack = [&](const HomeJob&, const wire::StdioAck& ack) { acks.push_back(ack); };
    std::vector<std::string> said;
    o.trouble = [&](const JobId&, const std::string& why) { said.push_back(why); };
    constexpr uint64_t share = 4 << 20;
    const TerminalBounds bounds{.stream_bytes = UINT64_MAX, .user_bytes = share};
    for (uint64_t seq = 1; seq <= 3; ++seq) {
        jobs[seq].id = {"n1", seq};
        jobs[seq].epoch = {1};
        jobs[seq].phase = JobPhase::running;
        jobs[seq].spec.launch.uid = seq < 3 ? 1'000 : 0;
    }
    const std::string piece(64 << 10, 'x');
    // Sends output of the job until no more is taken. Returns how much was taken.
    const auto fill = [&](Terminals& t, uint64_t seq, uint64_t from, uint64_t most) {
        for (uint64_t at = from; at < most; at += piece.size()) {
            acks.clear();
            t.data(jobs[seq], {{"n1", seq}, {1}, wire::Stream::out, at, piece});
            if (acks.empty()) return at;
        }
        return most;
    };
    {
        Terminals t(loop, std::move(*duplicate(dir.fd.get())), bounds, o);
        ck_assert_uint_eq(fill(t, 1, 0, 2 * share), share);
        ck_assert(said.back().starts_with("output of this user's jobs takes 4 MB on this node"));
        ck_assert_uint_eq(fill(t, 2, 0, share), 0);              // nor of another one of his
        ck_assert_uint_eq(fill(t, 3, 0, 2 * share), 2 * share);  // root has no such bound
        ck_assert(!t.prepare({"n1", 9}, false, 1'000) && t.prepare({"n1", 9}, false, 1'001));
    }
    Terminals t(loop, std::move(*duplicate(dir.fd.get())), bounds, o);  // another daemon
    t.recovered(jobs);
    ck_assert_uint_eq(fill(t, 2, 0, share), 0);
    t.erase({"n1", 1});
    ck_assert_uint_eq(fill(t, 2, 0, share), share);
    // The disk also has a reserve that no job may use.
    Terminals full(loop, std::move(*duplicate(dir.fd.get())),
                   {.stream_bytes = UINT64_MAX, .disk_reserve_bytes = INT64_MAX}, o);
    ck_assert_uint_eq(fill(full, 3, 2 * share, 3 * share), 2 * share);
    ck_assert(said.back().ends_with("(disk_reserve_mb)"));
}
END_TEST

UNIT_SUITE_LONG(terminals, 120, output_of_a_users_jobs_takes_a_share_of_the_disk_and_gives_it_back,
                what_a_slow_terminal_held_back_comes_when_it_has_read,
                the_slowest_of_two_terminals_holds_nothing_back_once_it_has_left,
                what_a_full_disk_held_back_comes_when_there_is_room,
                what_came_when_no_descriptor_was_left_comes_again_and_the_end_waits_for_it,
                held_back_output_always_comes, who_watches_hears_the_end_and_takes_no_output,
                a_terminal_that_runs_ahead_leaves_no_hole_in_its_users_files,
                a_cost_that_grows_by_the_price_is_told_once,
                a_job_that_cannot_have_its_spool_is_known_before_it_is_durable_and_leaves_nothing);

}  // namespace
}  // namespace souk::unit
