// SPDX-License-Identifier: GPL-2.0-or-later
// Records: what commit 59249cf packed is read as it was meant, and packed to the same bytes. Each
// field of a message has an entry in the list of fields of its struct, and a value that differs is
// named.
#include <limits>
#include <set>

#include "agentd/core/guest.hpp"
#include "agentd/core/home.hpp"
#include "agentd/core/record_fields.hpp"
#include "agentd/store/records.hpp"
#include "agentd/store/records.pb-c.h"
#include "agentd/wire/message_fields.hpp"
#include "kernel/base/field_json.hpp"
#include "kernel/wire/message_fields.hpp"
#include "market/core/record_fields.hpp"
#include "market/store/records.hpp"
#include "market/store/records.pb-c.h"
#include "tests/unit/golden_records.hpp"
// after the above: check.h defines `fail` as a macro
#include "tests/unit/unit.hpp"

namespace {

using namespace souk;

JobSpec spec_then() {
    JobSpec s;
    s.launch.argv = {"sh", "-c", "echo \xff"};
    s.launch.path = "/bin/sh";
    s.launch.env = {"HOME=/home/u", "LANG=C"};
    s.launch.cwd = "/home/u";
    s.launch.umask = 027;
    s.launch.rlimits = {{7, 1024, 4096}, {3, 8388608, UINT64_MAX}};
    s.launch.uid = 1000;
    s.launch.gid = 1001;
    s.launch.groups = {4, 24};
    s.launch.tty = true;
    s.launch.rows = 50;
    s.launch.cols = 132;
    s.move = MovePolicy::fast;
    s.tcp = TcpPolicy::keep;
    s.net = NetMode::own;
    s.address = {0x0a000102};
    s.checkpoint_every = {600'000'000'000};
    s.restart = true;
    s.lease = {60'000'000'000};
    return s;
}

JobTerms terms_then() {
    JobTerms t;
    t.max_price = {40'000'000};
    t.budget = {5'000'000};
    t.memory_mb = 512;
    t.cpus = 2;
    t.finish = {7'200'000'000'000};
    t.strategy = "eager";
    t.pace = true;
    return t;
}

MoveForecast forecast_then() {
    MoveForecast f;
    f.form = MoveForm::post_copy;
    f.pause = {82'800'000};
    f.total = {900'000'000};
    f.precopy_bytes = 45'000'000;
    f.precopy_time = {400'000'000};
    f.precopy_rounds = 3;
    f.left_bytes = 1'200'000;
    f.frozen_bytes = 1'300'000;
    f.dirty_bytes_per_s = 2'000'000;
    f.dirty_expected_bytes_per_s = 2'500'000;
    return f;
}

JobStats stats_then() {
    JobStats s;
    s.freezes = 1;
    s.thaws = 2;
    s.migrations = 3;
    s.failed_moves = 4;
    s.run_time = {5'000'000'000};
    s.longest_pause = {100'000'000};
    s.image_bytes = 1 << 20;
    s.last_move = {forecast_then(), {90'000'000}, {910'000'000}};
    s.resumes = 5;
    s.cpu_time = {4'900'000'000};
    return s;
}

HomeJob home_job_then() {
    HomeJob j;
    j.id = {"n1", 7};
    j.spec = spec_then();
    j.terms = terms_then();
    j.name = "modest";
    j.user = "user";
    j.submitted = {1'700'000'000'000'000'000};
    j.phase = JobPhase::moving;
    j.at = {"n2", "10.0.0.2:7777"};
    j.epoch = {3};
    j.to = {"n3", "10.0.0.3:7777"};
    j.to_epoch = {4};
    j.last_epoch = {5};
    j.step = MoveStep::transfer;
    j.from_frozen = true;
    j.order_seq = 12;
    j.cancelled = true;
    j.stats = stats_then();
    j.places = {"n1", "n2"};
    j.comment = "a better bid";
    j.wait_status = 256;
    j.why = "why";
    j.cost = {123'456};
    j.price = {20'000'000};
    j.settled = true;
    j.token = 0xfedcba9876543210;
    j.orphans = {{{"n4", "10.0.0.4:7777"}, {2}}};
    j.cpu_here = {700'000'000};
    j.leased = true;
    j.to_leased = true;
    j.checkpoint = {
        {"n1", "10.0.0.1:7777"}, {2}, {1'700'000'100'000'000'000}, 2 << 20, {11, 12}, 13};
    j.saving = {{"n1", "10.0.0.1:7777"}, {6}};
    j.splice = {true, {21, 22}, 23, 24, "gone back\n"};
    j.cost_run = {4'000'000'000};
    j.stay_run = {3'000'000'000};
    j.running_since = {50'000'000'000};
    j.boot = 0x0123456789abcdef;
    j.day_limit = {9'000'000};
    j.day_cost = {8'000'000};
    j.day_warn = {7'000'000};
    return j;
}

GuestJob guest_job_then() {
    GuestJob j;
    j.key = {{"n1", 7}, {3}};
    j.spec = spec_then();
    j.memory_mb = 512;
    j.cpus = 2;
    j.state = GuestState::frozen;
    j.from_image = true;
    j.kept = true;
    j.lapsed = true;
    j.image_bytes = 3 << 20;
    j.wait_status = 9;
    return j;
}

ProviderRecord provider_then() {
    ProviderRecord r;
    r.reserve = {15'000'000};
    r.speed = 80;
    r.cpus = 4;
    r.memory_mb = 4096;
    r.frames = "mon-fri 18:00-08:00";
    r.on_market = true;
    r.by_hand = true;
    r.since_unix_s = 1'700'000'000;
    return r;
}

JobReport report_then() {
    JobReport r;
    r.id = {"n1", 7};
    r.terms = terms_then();
    r.uid = 1000;
    r.user = "user";
    r.name = "modest";
    r.command = "sh -c echo";
    r.submitted = {1'700'000'000'000'000'000};
    r.phase = JobPhase::running;
    r.where = "n2";
    r.to = "n3";
    r.epoch = {3};
    r.order_seq = 12;
    r.comment = "comment";
    r.stands = true;
    r.cannot_move = "io_uring";
    r.address = {0x0a000102};
    r.pid = 4711;
    r.checkpoint_node = "n1";
    r.checkpoint_taken = {1'700'000'100'000'000'000};
    r.checkpoint_bytes = 2 << 20;
    r.stats = stats_then();
    r.stay_run = {3'000'000'000};
    r.alone = {600'000'000'000};
    r.places = {"n1", "n2"};
    r.cancelled = true;
    r.wait_status = 256;
    r.why = "why";
    return r;
}

market::JobRecord market_job_then() {
    market::JobRecord r;
    r.report = report_then();
    r.account = {{123'456}, 789};
    r.tab = {{1'700'000'000'000'000'000},
             {1'700'000'060'000'000'000},
             {-60'000'000'000},
             {20'000'000},
             {-333},
             {59'000'000'000}};
    r.billed = {4'000'000'000};
    r.skew = {1'000'000'000};
    r.price = {20'000'000};
    r.payee = "n2";
    r.order =
        Order{{"n1", 7}, 12, Order::Kind::run, "n3", "10.0.0.3:7777", {20'000'000}, "a bid", ""};
    r.hold = market::Hold::stay;
    r.hold_node = "n2";
    r.cancel = true;
    r.out_of_budget = true;
    r.finish_seq = 77;
    r.ended = {1'700'000'200'000'000'000};
    return r;
}

market::NodeRecord market_node_then() {
    market::NodeRecord r;
    r.node = "n2";
    r.address = "10.0.0.2:7777";
    r.has_report = true;
    r.report.node = "n2";
    r.report.on_market = true;
    r.report.reserve = {15'000'000};
    r.report.speed = 80;
    r.report.cpus = 4;
    r.report.memory_mb = 4096;
    r.report.free_mb = 2048;
    r.report.load_permille = 500;
    r.report.wait_permille = 20;
    r.report.load_source = "bpf";
    r.report.machine.architecture = "x86_64";
    r.report.machine.kernel = "6.1.0-18-amd64";
    r.report.machine.criu = "3.17.1";
    r.report.machine.page_bytes = 4096;
    r.report.machine.cpu_features = "avx avx2 sse";
    r.report.cannot = "no CRIU";
    r.earned = {-5};
    return r;
}

market::AccountRecord market_account_then() {
    market::AccountRecord r;
    r.holder = market::Holder::user(1000);
    r.name = "user";
    r.balance = {-987'654'321};
    r.day = 19'675;
    r.day_paid = {42};
    return r;
}

market::UserRecord market_user_then() {
    market::UserRecord r;
    r.uid = 1000;
    r.name = "user";
    r.limits.spend_per_day = Money{5'000'000};
    r.limits.cpus = 0;
    r.ended_day = 19'675;
    return r;
}

market::PriceRecord market_price_then() {
    market::PriceRecord r;
    r.minute = 28'333'333;
    r.minutes = 60;
    r.closed = 2;
    r.least = {3};
    r.low = {1};
    r.high = {9};
    r.speeds = {{100, 50, {7}}, {80, 58, {3}}};
    return r;
}

market::MetaRecord market_meta_then() {
    market::MetaRecord r;
    r.seq_limit = 10'000;
    r.finish_seq = 77;
    r.retired = {123};
    r.ledger = true;
    r.receipts = 55;
    r.day = 19'675;
    r.finished_retired = true;
    return r;
}

std::string bytes_of(const char* hex) {
    const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
    std::string bytes;
    for (; *hex; hex += 2) bytes += static_cast<char>(digit(hex[0]) << 4 | digit(hex[1]));
    return bytes;
}

template <class T>
void is_read(const char* name, const char* hex, const T& then) {
    const std::string bytes = bytes_of(hex);
    const auto now = wire::unpack<T>(bytes);
    ck_assert_msg(now.has_value(), "%s: %s", name, now ? "" : now.error().message.c_str());
    const std::string differ = changed_fields(*now, then);
    ck_assert_msg(differ.empty(), "%s: not as it was: %s", name, differ.c_str());
    ck_assert_msg(wire::pack(*now) == bytes, "%s: packed to other bytes", name);
}

START_TEST(records_of_commit_59249cf_are_read_and_packed_to_the_same_bytes) {
    using namespace unit;
    ProviderRecord provider = provider_then();
    provider.set =
        0;  // an older record: agentd takes the values of its configuration for what lacks
    is_read("HomeJob", golden::home_job, home_job_then());
    is_read("GuestJob", golden::guest_job, guest_job_then());
    is_read("ProviderRecord", golden::provider, provider);
    is_read("market::JobRecord", golden::market_job, market_job_then());
    is_read("market::NodeRecord", golden::market_node, market_node_then());
    is_read("market::AccountRecord", golden::market_account, market_account_then());
    is_read("market::UserRecord", golden::market_user, market_user_then());
    is_read("market::PriceRecord", golden::market_price, market_price_then());
    is_read("market::MetaRecord", golden::market_meta, market_meta_then());
}
END_TEST

// ---- the lists

template <class T>
void add_names(std::set<std::string>& names) {
    const T v{};
    for_each_field<T>([&]<class Entry>(const Entry& e) {
        if constexpr (requires { e.bits; }) names.insert(e.bits);
        if constexpr (requires { e.name; })
            names.insert(e.name);
        else
            add_names<std::remove_cvref_t<decltype(e.in(v))>>(names);
    });
}

template <class T>
void has_all(const ProtobufCMessageDescriptor& message, std::set<std::string> also = {}) {
    std::set<std::string> names = std::move(also);
    add_names<T>(names);
    for (unsigned i = 0; i < message.n_fields; ++i)
        ck_assert_msg(names.contains(message.fields[i].name), "%s: no list has the field %s",
                      message.short_name, message.fields[i].name);
}

START_TEST(each_number_of_a_message_has_its_entry_in_a_list) {
    has_all<HomeJob>(pb__home_job__descriptor, {"story_left_out"});  // of the story
    has_all<Orphan>(pb__orphan__descriptor);
    has_all<Checkpoint>(pb__checkpoint__descriptor);
    has_all<Splice>(pb__splice__descriptor);
    has_all<StoryStep>(pb__story_step__descriptor);
    has_all<GuestJob>(pb__guest_job__descriptor);
    has_all<ProviderRecord>(pb__provider_record__descriptor);
    has_all<JobSpec>(pb__job_spec__descriptor);
    has_all<JobTerms>(pb__job_terms__descriptor);
    has_all<JobStats>(pb__job_stats__descriptor);
    has_all<MoveForecast>(pb__move_forecast__descriptor);
    has_all<GuestCommand>(pb__guest_command__descriptor);
    has_all<GuestEvent>(pb__guest_event__descriptor);
    has_all<wire::Submit>(pb__submit__descriptor);
    has_all<wire::Attached>(pb__attached__descriptor);
    has_all<wire::Hello>(pb__hello__descriptor);
    has_all<wire::CtlRequest>(pb__ctl_request__descriptor);
    has_all<JobReport>(pb__job_report__descriptor);
    has_all<ProviderReport>(pb__provider_report__descriptor);
    has_all<Order>(pb__order__descriptor);
    has_all<JobNote>(pb__job_note__descriptor);
    has_all<market::JobRecord>(pb__market_job__descriptor);
    has_all<market::Tab>(pb__market_tab__descriptor);
    has_all<market::NodeRecord>(pb__market_node__descriptor);
    has_all<market::AccountRecord>(pb__market_account__descriptor);
    has_all<market::UserRecord>(pb__market_user__descriptor);
    has_all<market::PriceRecord>(pb__market_price__descriptor);
    has_all<market::MetaRecord>(pb__market_meta__descriptor);
    has_all<market::SolverSetting>(pb__solver_setting__descriptor);
}
END_TEST

START_TEST(what_differs_between_two_records_is_named) {
    const HomeJob before = home_job_then();
    HomeJob now = before;
    ck_assert_text(changed_fields(before, now), "");
    now.phase = JobPhase::running;
    now.checkpoint.output_end[1] = 99;
    ck_assert_text(changed_fields(before, now), "phase checkpoint");
    Checkpoint other = before.checkpoint;
    other.output_end[1] = 99;
    ck_assert_text(changed_fields(before.checkpoint, other), "stderr_end");
    GuestJob guest = guest_job_then();
    guest.key.epoch = {4};
    guest.lapsed = false;
    ck_assert_text(changed_fields(guest_job_then(), guest), "epoch lapsed");
}
END_TEST

START_TEST(a_record_is_json_with_every_field_by_its_name) {
    GuestJob guest = guest_job_then();
    guest.spec.launch.argv = {"sh", "-c", "a\nb"};
    JsonWriter j;
    j.begin_object();
    write_fields(j, guest);
    const std::string text = j.end_object().take();
    ck_assert(text.starts_with(R"({"id":"n1.7","epoch":3,"spec":{"argv":["sh","-c","a\nb"],)"));
    ck_assert(text.find(R"("rlimits":[{"resource":7,"soft":1024,"hard":4096},)") != text.npos);
    ck_assert(text.find(R"("move":"fast","tcp":"keep","net":"own","address":)") != text.npos);
    ck_assert(text.find(R"("checkpoint_every":600,"restart":true,"lease":60,)") != text.npos);
    ck_assert(text.find(R"("state":"frozen","from_image":true,)") != text.npos);
    JsonWriter home;
    home.begin_object();
    write_fields(home, HomeJob{});
    ck_assert(home.end_object().take().find(R"("running_since":null,)") != text.npos);
}
END_TEST

// ---- limits

// Every number in it, as far out as its type goes.
template <class T>
void push_out(T& v, bool up) {
    if constexpr (requires { v.edit(); }) {
        push_out(v.edit(), up);
    } else if constexpr (std::is_same_v<T, bool> || std::is_enum_v<T>) {
    } else if constexpr (std::is_integral_v<T>) {
        v = up ? std::numeric_limits<T>::max() : std::numeric_limits<T>::min();
    } else if constexpr (requires { v.ns; }) {
        push_out(v.ns, up);
    } else if constexpr (requires { v.micro; }) {
        push_out(v.micro, up);
    } else if constexpr (
        requires(uint64_t n) { T{n}; } && requires { v.n; }) {
        push_out(v.n, up);
    } else if constexpr (requires { v.begin(); } && !std::is_same_v<T, std::string>) {
        for (auto& element : v) push_out(element, up);
    } else if constexpr (Listed<T>) {
        for_each_field<T>([&]<class Entry>(const Entry& e) {
            if constexpr (requires { e.index; })
                push_out((v.*e.member)[e.index], up);
            else if constexpr (
                requires { e.part; } || requires { Entry::unsent; })
                return;
            else if constexpr (requires { e.member; })
                push_out(v.*e.member, up);
        });
    }
}

template <class T>
void is_read_whatever_its_numbers(const char* name, const T& good) {
    for (const bool up : {true, false}) {
        T record = good;
        push_out(record, up);
        const std::string bytes = wire::pack(record);
        const auto back = wire::unpack<T>(bytes);
        ck_assert_msg(back.has_value(), "%s: %s", name, back ? "" : back.error().message.c_str());
        const auto again = wire::unpack<T>(wire::pack(*back));
        ck_assert(again.has_value());
        const std::string differ = changed_fields(*back, *again);
        ck_assert_msg(differ.empty(), "%s: not as it was: %s", name, differ.c_str());
    }
}

START_TEST(a_record_is_read_whatever_its_numbers_were) {
    HomeJob home = home_job_then();
    home.story.add({});
    is_read_whatever_its_numbers("HomeJob", home);
    is_read_whatever_its_numbers("GuestJob", guest_job_then());
    GuestUse use;
    use.key = {{"n1", 7}, {3}};
    is_read_whatever_its_numbers("GuestUse", use);
    is_read_whatever_its_numbers("ProviderRecord", provider_then());
    is_read_whatever_its_numbers("OwnerReturn", OwnerReturn{});
    is_read_whatever_its_numbers("market::AccountRecord", market_account_then());
    is_read_whatever_its_numbers("market::UserRecord", market_user_then());
    is_read_whatever_its_numbers("market::MetaRecord", market_meta_then());
}
END_TEST

// The longest that a user may submit: `more` strings beyond that.
wire::Submit longest(size_t strings, size_t bytes) {
    wire::Submit s;
    s.terms.max_price = {1};
    s.name = std::string(255, 'n');
    s.out_file = s.err_file = "/" + std::string(4'094, 'o');
    LaunchSpec& launch = s.spec.launch;
    launch.argv = {"true"};
    launch.path = launch.cwd = "/" + std::string(4'094, 'p');
    for (int32_t i = 0; i < 16; ++i) launch.rlimits.push_back({i, UINT64_MAX, UINT64_MAX});
    launch.groups.assign(65'536, UINT32_MAX);
    s.spec.local_paths.assign(local_paths_max, "/" + std::string(254, 'l'));
    launch.env.assign(strings - 1, "");
    size_t left = bytes - std::string("true").size() - strings;
    for (std::string& one : launch.env) {
        const size_t n = std::min<size_t>(left, 100'000);
        one = std::string(n, 'x');
        left -= n;
    }
    return s;
}

template <class T>
void is_sent(const T& message) {
    const std::string bytes = wire::pack(message);
    ck_assert_uint_le(bytes.size(), wire::agent_words(wire::frame_type<T>));
    const auto back = wire::unpack<T>(bytes);
    ck_assert_msg(back.has_value(), "%s", back ? "" : back.error().message.c_str());
}

// From what its user submits to what its guest keeps.
START_TEST(a_job_that_is_taken_can_be_stored_and_sent_whatever_its_home_adds) {
    for (const size_t strings : {size_t{8}, spec_strings_max}) {
        const auto submit =
            wire::unpack<wire::Submit>(wire::pack(longest(strings, spec_bytes_max)));
        ck_assert_msg(submit.has_value(), "%s", submit ? "" : submit.error().message.c_str());
        Home home("n" + std::string(30, 'o'), {});
        home::Outputs out;
        Submission s;
        s.spec = submit->spec;
        s.terms = submit->terms;
        s.name = submit->name;
        s.user = std::string(255, 'u');
        s.out_file = submit->out_file;
        s.err_file = submit->err_file;
        s.group.first = true;
        s.group.index = UINT32_MAX;
        const auto id = home.submit(s, {}, out);
        ck_assert_msg(id.has_value(), "%s", id ? "" : id.error().message.c_str());
        Order order;
        order.id = *id;
        order.seq = 1;
        order.kind = Order::Kind::run;
        order.node = "n2";
        order.address = "10.0.0.2:1";
        order.ticket = std::string(4'096, 't');
        order.hold = order.layouts = order.near = true;
        home.order(order, {}, out);
        const GuestCommand* start = nullptr;
        for (const home::Output& o : out) {
            if (const auto* p = std::get_if<home::Persist>(&o)) {
                const auto back = wire::unpack<HomeJob>(wire::pack(p->job));
                ck_assert_msg(back.has_value(), "%s", back ? "" : back.error().message.c_str());
                ck_assert(back->spec == p->job.spec);
            }
            if (const auto* g = std::get_if<home::ToGuest>(&o)) start = &g->command;
        }
        ck_assert_ptr_nonnull(start);
        is_sent(*start);
        Guest guest;
        guest::Outputs kept;
        guest.command(id->home, *start, kept);
        bool is_kept = false;
        for (const guest::Output& o : kept)
            if (const auto* p = std::get_if<guest::Persist>(&o)) {
                is_kept = true;
                ck_assert(wire::unpack<GuestJob>(wire::pack(p->job)).has_value());
            }
        ck_assert(is_kept);
    }
    const auto more = [](size_t strings, size_t bytes) {
        const auto submit = wire::unpack<wire::Submit>(wire::pack(longest(strings, bytes)));
        return submit ? "it is taken" : submit.error().message;
    };
    ck_assert_text(more(8, spec_bytes_max + 1),
                   "Submit: env: arguments and environment have 524289 bytes, at most 524288");
    ck_assert_text(more(spec_strings_max + 2, spec_bytes_max),
                   "Submit: env: 32769 strings, at most 32768");
}
END_TEST

// A field that a list leaves out is found when the list is compiled.
struct Three {
    int a = 0;
    std::string b;
    uint64_t c[2] = {0, 0};
};
static_assert(detail::member_count<Three>() == 4);
static_assert(detail::member_count<HomeJob>() == detail::listed_count<HomeJob>());

}  // namespace

UNIT_SUITE(records, a_record_is_read_whatever_its_numbers_were,
           a_job_that_is_taken_can_be_stored_and_sent_whatever_its_home_adds,
           records_of_commit_59249cf_are_read_and_packed_to_the_same_bytes,
           each_number_of_a_message_has_its_entry_in_a_list,
           what_differs_between_two_records_is_named,
           a_record_is_json_with_every_field_by_its_name);
