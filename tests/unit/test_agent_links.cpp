// SPDX-License-Identifier: GPL-2.0-or-later
// One user who asks much of an agentd, or has it send much, leaves room to all others: the turns of
// users at its socket, its connections to the market and to other agentds, and what processes of
// users do about their jobs' files, which those users may stop. The far end is a channel that reads
// when the test lets it.
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "agentd/daemon/home_files.hpp"
#include "agentd/daemon/job_snapshots.hpp"
#include "agentd/daemon/market_link.hpp"
#include "agentd/daemon/peers.hpp"
#include "agentd/daemon/user_turns.hpp"
#include "tests/unit/loop_fixture.hpp"
#include "tests/unit/temp_dir.hpp"

using namespace souk;
using souk::unit::limit;
using souk::unit::open_loop;

namespace {

Log no_log() { return Log({.level_max = Level::error, .program = "test_agent_links"}); }

void work(Nanos span) {
    for (const Nanos end = Loop::now() + span; Loop::now() < end;) {
    }
}

// Accepts connections, welcomes whoever says hello, and then reads nothing until it is told to.
struct FarEnd {
    std::string name, address;
    std::unique_ptr<wire::Channel> channel;
    Listener listener;
    int connections = 0;
    bool reads = false;  // what comes after the hello
    std::vector<wire::FrameType> frames;
    std::vector<std::string> bodies;

    FarEnd(Loop& loop, std::string is, wire::Words words) : name(std::move(is)) {
        auto socket = listen_stream(*Address::parse("127.0.0.1:0"));
        OK(socket);
        address = Address::local(socket->get())->text();
        listener = std::move(*loop.listen(
            std::move(*socket),
            [this, &loop, words](Fd fd) {
                ++connections;
                wire::ChannelHandlers handlers;
                handlers.on_frame = [this](const wire::Frame& f) {
                    if (f.type != wire::frame::hello) {
                        frames.push_back(f.type);
                        bodies.emplace_back(f.body);
                        if (f.type == wire::frame::files_begin) welcome_files(f);
                        return;
                    }
                    OK(channel->send(wire::frame::welcome,
                                     wire::pack(wire::Welcome{wire::protocol_version, name})));
                    if (!reads) channel->pause_reading();
                };
                handlers.on_closed = [](const Error&) {};
                wire::ChannelOptions options;
                options.words = words;
                channel = std::move(
                    *wire::Channel::open(loop, std::move(fd), std::move(handlers), options));
            },
            {}));
    }
    void welcome_files(const wire::Frame& f) const {
        const auto begin = wire::unpack<wire::FilesBegin>(f.body);
        OK(begin);
        wire::ImageResult result;
        result.id = begin->id;
        result.epoch = begin->epoch;
        result.ok = true;
        OK(channel->send(wire::frame::image_result, wire::pack(result)));
    }
    size_t count(wire::FrameType type) const {
        return static_cast<size_t>(std::ranges::count(frames, type));
    }
};

struct Heard final : MarketListener {
    int ups = 0, downs = 0;
    std::function<void()> on_drained = [] {};
    void market_up(const std::string&) override { ++ups; }
    void market_down() override { ++downs; }
    void market_drained() override { on_drained(); }
    void market_tried() override {}
    void from_market(const FromMarket&) override {}
    void certified(const wire::Certified&) override {}
    void revoked(const std::string&) override {}
    void ticket_keys(const wire::TicketKeys&) override {}
    void peer_sites(const wire::PeerSites&) override {}
    wire::CtlReply market_asks(const wire::CtlRequest&) override { return {}; }
};

// A connection to a market that has welcomed this node.
struct Linked {
    Loop loop = open_loop();
    Log log = no_log();
    FarEnd market{loop, "market", wire::market_words};
    Heard heard;
    MarketLink link{loop, log, nullptr, "n1", "127.0.0.1:1", market.address, heard};

    Linked() {
        link.start();
        UNTIL(loop, heard.ups == 1);
    }
};

struct Guests final : HomeOfPeers, GuestsOfPeers, RemoteTools {
    int ups = 0;
    std::vector<GuestCommand> lost;
    void guest_up(const NodeName&) override { ++ups; }
    void undelivered(const NodeName&, const GuestCommand& c) override { lost.push_back(c); }
    void guest_too_old(const NodeName&, const GuestCommand&, const Trouble&) override {}
    Status from_guest(const NodeName&, const wire::Frame&) override { return {}; }
    bool guest_needed(const NodeName&) const override { return true; }
    void guest_drained(const NodeName&) override {}
    void home_up(const NodeName&) override {}
    void home_down(const NodeName&) override {}
    Status from_home(const NodeName&, const wire::Frame&) override { return {}; }
    void home_drained(const NodeName&) override {}
    Status from_image(uint64_t, const NodeName&, const wire::Frame&) override { return {}; }
    void image_closed(uint64_t) override {}
    void remote_request(uint64_t, const trust::Peer&, wire::CtlRequest) override {}
};

// Commands go to a guest that reads when the test lets it.
struct Guesting {
    Loop loop = open_loop();
    Log log = no_log();
    FarEnd guest{loop, "n2", wire::agent_words};
    Guests heard;
    Ways ways{loop};
    Peers peers{loop, log, nullptr, ways, "n1", "127.0.0.1:1"};

    Guesting() { peers.serve(heard, heard, heard); }
};

// A job's server of files that accepts nobody until the test does. Its queue is short.
struct ServedAtHome {
    unit::TempDir dir;
    Loop loop = open_loop();
    Log log = no_log();
    FarEnd guest{loop, "n2", wire::agent_words};
    sockaddr_un address{};
    Fd server{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
    std::vector<Fd> queue;
    int started = 0;
    std::string waits;
    StartFiles start{[this](const auto&, const auto&, bool) -> Result<Pidfd> {
                         ++started;
                         return fail("no server is started here");
                     },
                     [](const Pidfd&) {}};
    Ways ways{loop};
    HomeFiles files{loop,     log,
                    start,    {"n1", "127.0.0.1:1", nullptr, &ways},
                    dir.path, [this](const JobId&, const FilesUse& use) { waits = use.waits; }};

    ServedAtHome() {
        address.sun_family = AF_UNIX;
        (dir.path + "/1").copy(address.sun_path, sizeof address.sun_path - 1);
        ck_assert(::bind(server.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
        ck_assert(::listen(server.get(), 1) == 0);
        guest.reads = true;
    }
    void fill_queue() {
        for (bool is_full = false; !is_full;) {
            queue.emplace_back(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
            is_full = ::connect(queue.back().get(), reinterpret_cast<sockaddr*>(&address),
                                sizeof address) != 0;
        }
    }
    Fd accept() const { return Fd(::accept4(server.get(), nullptr, nullptr, SOCK_CLOEXEC)); }
    void run_job() {
        HomeJob job;
        job.id = {"n1", 1};
        job.epoch = {1};
        job.phase = JobPhase::running;
        job.at = {"n2", guest.address};
        job.spec.files = FilesMode::home;
        files.job(job);
    }
};

// Work on snapshots lasts until the test ends it.
struct SnapshotsBegun {
    Loop loop = open_loop();
    Log log = no_log();
    std::vector<std::string> begun;  // what, name
    std::vector<Fd> answers;
    bool starts = true;
    StartFiles start{[this](const auto& words, const auto& fds, bool) -> Result<Pidfd> {
                         begun.push_back(words[1] + " " + words[5]);
                         if (!starts) return fail("no process is started");
                         answers.emplace_back(::dup(fds[0]));
                         return Pidfd();
                     },
                     [](const Pidfd&) {}};
    JobSnapshots snapshots{loop, log, start};

    void end_last(std::string_view said) {
        (void)write_all(answers.back().get(), said, "an answer");
        answers.back().reset();
    }
};

HomeJob with_snapshots(uint32_t uid, uint64_t seq, uint64_t epoch) {
    HomeJob job;
    job.id = {"n1", seq};
    job.spec.launch.uid = uid;
    job.spec.files = FilesMode::home;
    job.spec.files_snapshot = true;
    job.phase = epoch == 0 ? JobPhase::finished : JobPhase::running;
    job.checkpoint.epoch = {epoch};
    return job;
}

GuestCommand start_of(uint32_t uid, uint64_t seq, size_t environment) {
    GuestCommand c;
    c.id = {"n1", seq};
    c.epoch = {1};
    c.verb = GuestVerb::start;
    c.spec.launch.uid = uid;
    c.spec.launch.path = "/bin/true";
    c.spec.launch.argv = {"true"};
    c.spec.launch.cwd = "/";
    c.spec.launch.env.assign(5, "X=" + std::string(environment / 5, 'x'));
    return c;
}

}  // namespace

START_TEST(a_users_requests_wait_when_they_have_taken_long_and_others_do_not) {
    Loop loop = open_loop();
    UserTurns turns(loop);
    for (int i = 0; i < 5; ++i) {
        ck_assert(turns.is_now(0));
        turns.run(0, [] { work(Nanos::from_ms(20)); });
    }
    ck_assert(turns.is_now(0) && turns.is_now(1000));
    turns.run(1000, [] { work(Nanos::from_ms(60)); });
    ck_assert(!turns.is_now(1000));
    ck_assert(turns.is_now(0) && turns.is_now(1001));
    std::string order;
    const Nanos begun = Loop::now();
    for (const char* who : {"a", "b", "c"}) turns.later(1000, [&order, who] { order += who; });
    ck_assert_text(order, "");
    UNTIL(loop, order == "abc");
    // He has waited until all but half of a burst is paid.
    ck_assert(Loop::now() - begun >= Nanos::from_ms(30));
    ck_assert(turns.is_now(1000));
}
END_TEST

START_TEST(users_who_always_ask_take_half_of_the_time_and_each_of_them_his_part) {
    Loop loop = open_loop();
    UserTurns turns(loop);
    std::map<uid_t, Nanos> took;
    bool over = false;
    std::function<void(uid_t)> ask = [&](uid_t uid) {
        turns.later(uid, [&, uid] {
            const Nanos begun = Loop::now();
            work(Nanos::from_ms(5));
            took[uid] += Loop::now() - begun;
            if (!over) ask(uid);
        });
    };
    const Nanos begun = Loop::now();
    for (int i = 0; i < 20; ++i) ask(1000);
    ask(1001);
    ask(1002);
    (void)loop.run_until([&] { return Loop::now() - begun >= Nanos::from_s(2); }, Nanos::from_s(3));
    over = true;
    const double all = (Loop::now() - begun).seconds();
    const double of[] = {took[1000].seconds(), took[1001].seconds(), took[1002].seconds()};
    ck_assert_msg(of[0] + of[1] + of[2] < 0.75 * all, "%f of %f", of[0] + of[1] + of[2], all);
    for (const double part : of) ck_assert_msg(part > 0.05 * all, "%f of %f", part, all);
}
END_TEST

START_TEST(reports_that_the_market_does_not_take_wait_and_the_connection_stands) {
    Linked l;
    JobReport report;
    report.terms.max_price = Money{1};
    report.name = std::string(200, 'n');
    report.command = std::string(4'000, 'c');
    constexpr size_t all = 60'000;
    size_t sent = 0;
    const auto send_on = [&] {
        for (; sent < all; ++sent) {
            report.id = {"n1", sent + 1};
            if (!l.link.send(report)) return;
        }
    };
    l.heard.on_drained = send_on;
    send_on();
    ck_assert_msg(sent > 1'000 && sent < all, "%zu", sent);
    // A short message has room all the same.
    for (int i = 0; i < 1'000; ++i)
        ck_assert(l.link.send(OrderFailed{{"n1", 1}, 1, "n2", "it is so"}));
    (void)l.loop.run_until([] { return false; }, Nanos::from_ms(100));
    ck_assert(l.link.connected() && l.heard.downs == 0 && sent < all);
    l.market.channel->resume_reading();
    UNTIL(l.loop, l.market.count(wire::frame::job_report) == all &&
                      l.market.count(wire::frame::order_failed) == 1'000);
    ck_assert(l.heard.downs == 0 && l.market.connections == 1);
}
END_TEST

START_TEST(questions_of_one_user_leave_room_for_others_and_those_of_all_for_root) {
    Linked l;
    int refused = 0;
    const auto ask = [&](uint32_t uid) {
        wire::CtlRequest question;
        question.verb = "status";
        question.uid = uid;
        const int before = refused;
        l.link.ask(question, [&](const wire::CtlReply& reply) {
            ck_assert(reply.error.code == CauseCode::too_many || refused < 0);
            ++refused;
        });
        return refused == before;
    };
    int taken = 0;
    while (taken < 2'000 && ask(1000)) ++taken;
    ck_assert_msg(taken >= 16 && taken <= 128, "%d", taken);
    for (uint32_t uid = 1001; uid < 1040; ++uid)
        while (ask(uid)) ++taken;
    ck_assert_msg(taken < 1'000, "%d", taken);
    for (int i = 0; i < 100; ++i) ck_assert(ask(0));
    refused = -100'000;  // the rest ends with the connection
}
END_TEST

START_TEST(starts_longer_than_the_queue_of_a_connection_all_go_over_it_in_order) {
    Guesting l;
    constexpr size_t starts = 60;
    for (uint64_t seq = 1; seq <= starts; ++seq) {
        l.peers.command({"n2", l.guest.address}, start_of(1000, seq, 500'000));
        if (seq == starts / 2) UNTIL(l.loop, l.heard.ups == 1);  // half before it is connected
    }
    GuestCommand kill;
    kill.id = {"n1", 1};
    kill.epoch = {1};
    kill.verb = GuestVerb::kill;
    l.peers.command({"n2", l.guest.address}, kill);
    // There is room for what is urgent.
    ck_assert(l.peers.to_guest("n2", Heartbeat{}));
    (void)l.loop.run_until([] { return false; }, Nanos::from_ms(100));
    l.guest.channel->resume_reading();
    UNTIL(l.loop, l.guest.count(wire::frame::guest_command) == starts + 1);
    ck_assert_int_eq(l.guest.connections, 1);
    ck_assert(l.heard.lost.empty());
    uint64_t next = 1;
    for (size_t i = 0; i < l.guest.frames.size(); ++i) {
        if (l.guest.frames[i] != wire::frame::guest_command) continue;
        const auto command = wire::unpack<GuestCommand>(l.guest.bodies[i]);
        ck_assert_msg(command.has_value(), "%s", command ? "" : command.error().message.c_str());
        ck_assert_uint_eq(command->id.seq, next <= starts ? next : 1);
        ck_assert(command->verb == (next <= starts ? GuestVerb::start : GuestVerb::kill));
        ++next;
    }
}
END_TEST

START_TEST(starts_of_one_user_that_wait_leave_room_for_those_of_others) {
    Guesting l;
    for (uint64_t seq = 1; seq <= 5'000; ++seq)
        l.peers.command({"n2", l.guest.address}, start_of(1000, seq, 10));
    ck_assert_msg(l.heard.lost.size() > 3'000 && l.heard.lost.size() < 5'000, "%zu",
                  l.heard.lost.size());
    const size_t before = l.heard.lost.size();
    for (uint64_t seq = 5'001; seq <= 5'500; ++seq)
        l.peers.command({"n2", l.guest.address}, start_of(1001, seq, 10));
    ck_assert_uint_eq(l.heard.lost.size(), before);
}
END_TEST

START_TEST(a_server_of_files_that_accepts_nobody_is_waited_for_by_its_job_alone) {
    ServedAtHome l;
    l.fill_queue();
    l.run_job();
    UNTIL(l.loop, l.waits == "its server takes no connection");
    while (l.accept()) continue;
    UNTIL(l.loop, l.waits.empty());
    const Fd served = l.accept();
    files::Head attach{};
    ck_assert(::recv(served.get(), &attach, sizeof attach, 0) == sizeof attach);
    ck_assert(attach.kind == files::Kind::attach);
    ck_assert_int_eq(l.started, 0);
}
END_TEST

START_TEST(a_node_that_breaks_each_way_to_a_jobs_files_makes_the_pauses_grow) {
    ServedAtHome l;
    l.run_job();
    int attached = 0;
    const auto broken = l.loop.run_until(
        [&] {
            if (!l.accept()) return false;
            ++attached;
            l.guest.channel.reset();
            return false;
        },
        Nanos::from_s(1));
    OK(broken);
    ck_assert_msg(attached > 1 && attached <= 8, "%d", attached);
}
END_TEST

START_TEST(snapshots_of_a_user_who_stops_what_is_done_hold_nobody_elses) {
    SnapshotsBegun l;
    std::string said;
    l.snapshots.job(with_snapshots(1000, 1, 0));
    l.snapshots.go_back(with_snapshots(1001, 2, 3), [&](const std::string& s) { said = s; });
    ck_assert_uint_eq(l.begun.size(), 2);
    ck_assert_text(l.begun[1], "put-back n1.2.3");
    l.end_last("+all is back");
    UNTIL(l.loop, said == "all is back");
}
END_TEST

START_TEST(of_a_user_one_thing_is_done_at_a_time_first_what_a_job_waits_for) {
    SnapshotsBegun l;
    std::string said;
    l.snapshots.job(with_snapshots(1000, 1, 0));
    for (const uint64_t epoch : {3, 5}) l.snapshots.job(with_snapshots(1000, 2, epoch));
    l.snapshots.go_back(with_snapshots(1000, 3, 7), [&](const std::string& s) { said = s; });
    ck_assert_uint_eq(l.begun.size(), 1);
    l.end_last("+");
    UNTIL(l.loop, l.begun.size() == 2);
    ck_assert_text(l.begun[1], "put-back n1.3.7");
    l.end_last("-it cannot be");
    UNTIL(l.loop, l.begun.size() == 3);
    ck_assert_text(said, "its files are not put back to what they were then: it cannot be");
    ck_assert_text(l.begun[2], "drop n1.2.5");
    // They wait, up to a bound.
    for (uint64_t seq = 10; seq < JobSnapshots::drops_max + 20; ++seq)
        l.snapshots.job(with_snapshots(1000, seq, 0));
    ck_assert_uint_eq(l.begun.size(), 3);
    l.starts = false;
    l.end_last("+");
    UNTIL(l.loop, l.begun.size() >= 3 + JobSnapshots::drops_max);
    l.snapshots.job(with_snapshots(1000, 4, 0));
    UNTIL(l.loop, l.begun.back() == "drop n1.4." + std::to_string(UINT64_MAX));
    ck_assert_uint_eq(l.begun.size(), 4 + JobSnapshots::drops_max);
}
END_TEST

UNIT_SUITE(agent_links, a_users_requests_wait_when_they_have_taken_long_and_others_do_not,
           users_who_always_ask_take_half_of_the_time_and_each_of_them_his_part,
           reports_that_the_market_does_not_take_wait_and_the_connection_stands,
           questions_of_one_user_leave_room_for_others_and_those_of_all_for_root,
           starts_longer_than_the_queue_of_a_connection_all_go_over_it_in_order,
           starts_of_one_user_that_wait_leave_room_for_those_of_others,
           a_server_of_files_that_accepts_nobody_is_waited_for_by_its_job_alone,
           a_node_that_breaks_each_way_to_a_jobs_files_makes_the_pauses_grow,
           snapshots_of_a_user_who_stops_what_is_done_hold_nobody_elses,
           of_a_user_one_thing_is_done_at_a_time_first_what_a_job_waits_for);
