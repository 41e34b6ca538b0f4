// SPDX-License-Identifier: GPL-2.0-or-later
// Long: each request is packed, read and checked side by side.
#include "agentd/root/requests.hpp"

#include <algorithm>

#include "kernel/base/number.hpp"
#include "kernel/base/packing.hpp"
#include "kernel/base/text.hpp"
#include "kernel/sys/host/cpu_event.hpp"
#include "kernel/sys/net/descriptors.hpp"

namespace souk::root {
namespace {

enum class Kind : uint8_t {
    program = 1,
    capsule = 2,
    criu = 3,
    open = 4,
    port = 5,
    take = 6,
    settle = 7,
    status = 8,
    directory = 9,
    look = 10,
    fit = 11,
    waits = 12,
    end = 13,
    connect = 14,
    device = 15,
    started = 16,
    refused = 17,
    done = 18,
    give = 19,
    learn = 20,
    inputs = 21,
    own_file = 22,
    cpu_event = 23,
    adopt = 24,
    arm = 25,
    loaded = 26,
    act = 27,
    hold = 28,
    feed = 29,
    held = 30,
    release = 31,
    say = 32,
    mend = 33,
    keep = 34,
    see = 35
};

struct Writer : PackWriter {
    explicit Writer(Kind kind) { number(static_cast<uint8_t>(kind), 1); }
    void words(const std::vector<std::string>& all) {
        number(all.size(), 4);
        for (const std::string& word : all) text(word);
    }
    template <class Number>
    void numbers(const std::vector<Number>& all) {
        number(all.size(), 4);
        for (const Number one : all) number(static_cast<uint32_t>(one), 4);
    }
    void user(const RunsAs& as) {
        number(as.uid, 4);
        number(as.gid, 4);
        numbers(as.groups);
    }
};

struct Reader : PackReader {
    explicit Reader(std::string_view packet) : PackReader{packet} {}
    bool flag() {
        const uint64_t value = number(1);
        if (value > 1) whole = false;
        return value == 1;
    }
    // As words of a program: none has a zero within.
    std::string word() {
        std::string read = text(word_bytes_max);
        if (read.find('\0') != read.npos) whole = false;
        return read;
    }
    std::vector<std::string> words() {
        std::vector<std::string> all;
        const uint64_t count = number(4);
        if (count > words_max) whole = false;
        for (uint64_t i = 0; i < count && whole; ++i) all.push_back(word());
        return all;
    }
    template <class Number>
    std::vector<Number> numbers(size_t most) {
        std::vector<Number> all;
        const uint64_t count = number(4);
        if (count > most) whole = false;
        for (uint64_t i = 0; i < count && whole; ++i) all.push_back(static_cast<Number>(number(4)));
        return all;
    }
    RunsAs user() {
        RunsAs as{true, static_cast<uint32_t>(number(4)), static_cast<uint32_t>(number(4)), {}};
        as.groups = numbers<uint32_t>(groups_max);
        return as;
    }
    std::vector<int32_t> pids() {
        auto all = numbers<int32_t>(pids_max);
        if (std::ranges::any_of(all, [](int32_t pid) { return pid <= 0; })) whole = false;
        return all;
    }
};

tl::unexpected<Error> no_request() { return fail("a packet that is no request"); }

// What each has at least; those of v1 groups follow.
size_t descriptors_of(const MakeCapsule& c) { return 1U + (c.files ? 2U : 0U) + c.cgroup; }
size_t descriptors_of(const StartCriu& c) { return 3U + !c.restores + c.cgroup + c.ends; }

StartProgram read_program(Reader& r) {
    StartProgram p;
    const uint64_t program = r.number(1);
    if (program < 1 || program > 3) r.whole = false;
    p.program = static_cast<Program>(program);
    p.words = r.words();
    p.session = r.flag();
    return p;
}

MakeCapsule read_capsule(Reader& r) {
    MakeCapsule c;
    for (bool* flag : {&c.own_net, &c.private_tmp, &c.check_access, &c.home_tree, &c.hosts,
                       &c.files, &c.cgroup, &c.own})
        *flag = r.flag();
    c.user = r.user();
    c.ticket = r.text(ticket_bytes_max);
    c.laid_over = r.words();
    c.hidden = r.words();
    c.run_keep = r.word();
    return c;
}

StartCriu read_criu(Reader& r) {
    StartCriu c;
    c.restores = r.flag();
    c.cgroup = r.flag();
    c.ends = static_cast<uint8_t>(r.number(1));
    return c;
}

OpenFile read_open(Reader& r) {
    const uint64_t file = r.number(1);
    if (file < 1 || file > static_cast<uint64_t>(process_file_last)) r.whole = false;
    return {static_cast<ProcessFile>(file)};
}

OpenDirectory read_directory(Reader& r) {
    const uint64_t which = r.number(1);
    if (which < 1 || which > 2) r.whole = false;
    return {static_cast<CapsuleDirectory>(which)};
}

OpenOfMachine read_device(Reader& r) {
    const uint64_t which = r.number(1);
    if (which < 1 || which > static_cast<uint64_t>(device_last)) r.whole = false;
    return {static_cast<Device>(which)};
}

OpenOwnFile read_own_file(Reader& r) {
    const uint64_t file = r.number(1);
    if (file < 1 || file > 2) r.whole = false;
    return {static_cast<OwnFile>(file)};
}

OpenEvent read_event(Reader& r) {
    OpenEvent e;
    e.cpu = static_cast<uint16_t>(r.number(2));
    e.every_us = static_cast<uint32_t>(r.number(4));
    const Nanos every{int64_t{e.every_us} * 1'000};
    if (e.cpu >= cpus_most ||
        (every.ns != 0 && (every < cpu_clock_least || every > cpu_clock_most)))
        r.whole = false;
    return e;
}

LookInside read_look(Reader& r) {
    LookInside l;
    for (bool* flag : {&l.what.states, &l.what.mapped, &l.what.infos, &l.what.maps})
        *flag = r.flag();
    l.what.files_max = static_cast<uint32_t>(r.number(4));
    l.pids = r.pids();
    return l;
}

FitRestored read_fit(Reader& r) {
    FitRestored f;
    f.pids = r.pids();
    const uint64_t limits = r.number(4);
    if (limits > limits_max) r.whole = false;
    for (uint64_t i = 0; i < limits && r.whole; ++i) {
        const auto resource = static_cast<uint8_t>(r.number(1));
        if (resource >= limits_max) r.whole = false;
        f.limits.emplace_back(resource, r.number(8));
    }
    return f;
}

AdoptUsers read_adopt(Reader& r) {
    AdoptUsers a;
    const uint64_t count = r.number(4);
    if (count > adopted_max) r.whole = false;
    for (uint64_t i = 0; i < count && r.whole; ++i) a.users.push_back(r.user());
    a.more = r.flag();
    return a;
}

// "sj", and 48 bits.
bool names_port(std::string_view name) {
    constexpr size_t bytes = 14;
    return name.size() == bytes && name.starts_with("sj") &&
           name.find_first_not_of("0123456789abcdef", 2) == name.npos;
}

MakePort read_port(Reader& r) {
    PortPlan p;
    p.found = r.flag();
    p.shut = r.flag();
    p.address.n = static_cast<uint32_t>(r.number(4));
    p.name = r.word();
    if (!names_port(p.name) || !p.address || (p.found && p.shut)) r.whole = false;
    return {std::move(p)};
}

ArmPort read_arm(Reader& r) {
    const uint64_t gate = r.number(1);
    if (gate > static_cast<uint64_t>(Gate::begins_nothing)) r.whole = false;
    return {static_cast<Gate>(gate)};
}

ActOnPort read_act(Reader& r) {
    const uint64_t what = r.number(1);
    if (what < 1 || what > static_cast<uint64_t>(PortAct::announce)) r.whole = false;
    return {static_cast<PortAct>(what)};
}

HoldFrames read_hold(Reader& r) {
    HoldFrames h;
    h.way = static_cast<FrameWay>(r.number(1));
    h.follows = r.flag();
    if (h.way > FrameWay::from_job || (h.follows && h.way != FrameWay::to_job)) r.whole = false;
    return h;
}

Nanos read_time(Reader& r) { return Nanos{static_cast<int64_t>(r.number(8))}; }

FeedFrames read_feed(Reader& r) {
    const Nanos since = read_time(r);
    return {since, r.flag()};
}

ReleaseFrames read_release(Reader& r) {
    FrameRelease how;
    how.gives = r.flag();
    how.heard = read_time(r);
    how.spoke = read_time(r);
    return {how};
}

SayFrames read_say(Reader& r) {
    const auto way = static_cast<FrameWay>(r.number(1));
    if (way != FrameWay::to_job && way != FrameWay::within) r.whole = false;
    return {way};
}

Status check_one(size_t descriptors, size_t wanted) {
    return descriptors == wanted ? Status{} : Status(fail("a request with other descriptors"));
}
Status check(const OpenFile&, size_t n) {
    return n == 0 || n > descriptors_max ? check_one(n, 1) : Status{};
}
Status check(const TakeDescriptor&, size_t n) { return check_one(n, 1); }
Status check(const SettleSockets&, size_t n) { return check_one(n, 1); }
Status check(const PutStatus&, size_t n) { return check_one(n, 0); }
Status check(const OpenDirectory&, size_t n) { return check_one(n, 1); }
Status check(const LookInside&, size_t n) { return check_one(n, 1); }
Status check(const AskWaits&, size_t n) { return check_one(n, 1); }
Status check(const AskLoaded&, size_t n) { return check_one(n, 1); }
Status check(const EndProcess&, size_t n) { return check_one(n, 1); }
Status check(const ConnectInit&, size_t n) { return check_one(n, 2); }
Status check(const OpenOfMachine&, size_t n) { return check_one(n, 0); }
Status check(const GiveFiles&, size_t n) { return check_one(n, 1); }
Status check(const LearnKernel&, size_t n) { return check_one(n, 1); }
Status check(const AddInputs&, size_t n) { return check_one(n, 1); }
Status check(const OpenOwnFile&, size_t n) { return check_one(n, 0); }
Status check(const OpenEvent&, size_t n) { return check_one(n, 0); }
Status check(const AdoptUsers&, size_t n) { return check_one(n, 0); }
Status check(const FitRestored&, size_t n) { return check_one(n, 1); }
Status check(const MakePort&, size_t n) { return check_one(n, 1); }
Status check(const ArmPort&, size_t n) { return check_one(n, 1); }
Status check(const ActOnPort&, size_t n) { return check_one(n, 1); }
Status check(const HoldFrames&, size_t n) { return check_one(n, 1); }
Status check(const FeedFrames& f, size_t n) { return check_one(n, 1U + f.frames); }
Status check(const TellHeld&, size_t n) { return check_one(n, 1); }
Status check(const ReleaseFrames&, size_t n) { return check_one(n, 1); }
Status check(const SayFrames&, size_t n) { return check_one(n, 2); }
Status check(const KeepPackets& k, size_t n) { return check_one(n, k.some ? 2 : 0); }
Status check(const SeePacketsOfAll&, size_t n) { return check_one(n, 0); }
Status check(const EndRepair&, size_t n) { return check_one(n, 1); }

Status check(const StartProgram& p, size_t descriptors) {
    if (p.program == Program::files) return check_files_words(p.words, descriptors, p.session);
    if (!p.words.empty() || p.session || descriptors != 1)
        return fail("a program that takes no words and one socket");
    return {};
}

bool is_nobody(const RunsAs& as) {
    return as.uid == no_id || as.gid == no_id || std::ranges::count(as.groups, no_id) > 0;
}

// Which directory that is, links on its way may say otherwise than who compares names.
bool goes_up(std::string_view path) {
    for (size_t at = 0; at <= path.size();) {
        const size_t end = std::min(path.find('/', at), path.size());
        if (path.substr(at, end - at) == "..") return true;
        at = end + 1;
    }
    return false;
}

// Names below /run, parted by blanks.
bool names_up(std::string_view names) {
    while (!names.empty()) {
        const std::string_view one = names.substr(0, names.find(' '));
        names.remove_prefix(std::min(one.size() + 1, names.size()));
        if (one.starts_with('/') || goes_up(one)) return true;
    }
    return false;
}

Status check(const MakeCapsule& c, size_t descriptors) {
    if (is_nobody(c.user)) return fail("a capsule for nobody in particular");
    if (descriptors < descriptors_of(c)) return fail("a capsule without its descriptors");
    const auto absolute = [](const std::string& path) { return path.starts_with('/'); };
    if (!std::ranges::all_of(c.laid_over, absolute) || !std::ranges::all_of(c.hidden, absolute))
        return fail("a capsule over a path that does not begin at the root");
    if (std::ranges::any_of(c.laid_over, goes_up) || std::ranges::any_of(c.hidden, goes_up) ||
        names_up(c.run_keep))
        return fail("a capsule over a path that goes up");
    return {};
}

Status check(const StartCriu& c, size_t descriptors) {
    if (descriptors < descriptors_of(c)) return fail("CRIU without its descriptors");
    if (c.ends > criu_ends_max || (c.ends == 0) == c.restores)
        return fail("CRIU with that many ends of a job");
    return {};
}

// A form of souk-files: u a user or group, g groups, n a number, t any text, / an absolute path
// that may have a + before it; the last one may repeat (*). `owns`: of who has jobs that began
// here.
struct Form {
    const char *verb, *words;
    size_t descriptors;
    bool session, owns;
};
constexpr Form forms[] = {
    {"serve", "/uug/*", 2, true, true},     {"client", "uu", 3, false, false},
    {"store", "n", 2, false, false},        {"append", "uugnttt", 2, true, true},
    {"snapshot", "tuugtt", 2, true, false}, {"sync", "", 2, true, false}};

bool is_user(std::string_view word) {
    const auto number = whole_number<uint32_t>(word);
    return number && *number != UINT32_MAX;
}

// "4,27"; what is no number is nobody's.
std::vector<uint32_t> groups_in(std::string_view words) {
    std::vector<uint32_t> all;
    while (!words.empty()) {
        const size_t end = std::min(words.find(','), words.size());
        all.push_back(whole_number<uint32_t>(words.substr(0, end)).value_or(no_id));
        words.remove_prefix(std::min(end + 1, words.size()));
    }
    return all;
}

bool is_groups(std::string_view words) { return std::ranges::count(groups_in(words), no_id) == 0; }

bool fits(char kind, std::string_view word) {
    switch (kind) {
        case 'u': return is_user(word);
        case 'g': return is_groups(word);
        case 'n': return whole_number<uint64_t>(word).has_value();
        case '/': return word.substr(word.starts_with('+')).starts_with('/');
        default: return true;
    }
}

}  // namespace

namespace {
std::string pack_one(const StartProgram& p) {
    Writer w(Kind::program);
    w.number(static_cast<uint8_t>(p.program), 1);
    w.words(p.words);
    w.number(p.session, 1);
    return w.bytes;
}
std::string pack_one(const MakeCapsule& c) {
    Writer w(Kind::capsule);
    for (const bool flag :
         {c.own_net, c.private_tmp, c.check_access, c.home_tree, c.hosts, c.files, c.cgroup, c.own})
        w.number(flag, 1);
    w.user(c.user);
    w.text(c.ticket);
    w.words(c.laid_over);
    w.words(c.hidden);
    w.text(c.run_keep);
    return w.bytes;
}
std::string pack_one(const StartCriu& c) {
    Writer w(Kind::criu);
    w.number(c.restores, 1);
    w.number(c.cgroup, 1);
    w.number(c.ends, 1);
    return w.bytes;
}
std::string pack_one(const OpenFile& o) {
    Writer w(Kind::open);
    w.number(static_cast<uint8_t>(o.file), 1);
    return w.bytes;
}
std::string pack_one(const TakeDescriptor& t) {
    Writer w(Kind::take);
    w.number(t.number, 4);
    return w.bytes;
}
std::string pack_one(const SettleSockets& s) {
    Writer w(Kind::settle);
    w.number(s.runs, 1);
    return w.bytes;
}
std::string pack_one(const PutStatus& p) {
    Writer w(Kind::status);
    w.text(p.text);
    return w.bytes;
}
std::string pack_one(const OpenDirectory& d) {
    Writer w(Kind::directory);
    w.number(static_cast<uint8_t>(d.which), 1);
    return w.bytes;
}
std::string pack_one(const LookInside& l) {
    Writer w(Kind::look);
    for (const bool flag : {l.what.states, l.what.mapped, l.what.infos, l.what.maps})
        w.number(flag, 1);
    w.number(l.what.files_max, 4);
    w.numbers(l.pids);
    return w.bytes;
}
std::string pack_one(const FitRestored& f) {
    Writer w(Kind::fit);
    w.numbers(f.pids);
    w.number(f.limits.size(), 4);
    for (const auto& [resource, most] : f.limits) {
        w.number(resource, 1);
        w.number(most, 8);
    }
    return w.bytes;
}
std::string pack_one(const AskWaits&) { return Writer(Kind::waits).bytes; }
std::string pack_one(const AskLoaded&) { return Writer(Kind::loaded).bytes; }
std::string pack_one(const EndProcess&) { return Writer(Kind::end).bytes; }
std::string pack_one(const ConnectInit&) { return Writer(Kind::connect).bytes; }
std::string pack_one(const OpenOfMachine& o) {
    Writer w(Kind::device);
    w.number(static_cast<uint8_t>(o.which), 1);
    return w.bytes;
}
std::string pack_one(const GiveFiles&) { return Writer(Kind::give).bytes; }
std::string pack_one(const LearnKernel&) { return Writer(Kind::learn).bytes; }
std::string pack_one(const AddInputs& a) {
    Writer w(Kind::inputs);
    w.number(a.pseudo, 1);
    return w.bytes;
}
std::string pack_one(const OpenOwnFile& o) {
    Writer w(Kind::own_file);
    w.number(static_cast<uint8_t>(o.file), 1);
    return w.bytes;
}
std::string pack_one(const OpenEvent& e) {
    Writer w(Kind::cpu_event);
    w.number(e.cpu, 2);
    w.number(e.every_us, 4);
    return w.bytes;
}

std::string pack_one(const MakePort& p) {
    Writer w(Kind::port);
    w.number(p.plan.found, 1);
    w.number(p.plan.shut, 1);
    w.number(p.plan.address.n, 4);
    w.text(p.plan.name);
    return w.bytes;
}
std::string pack_one(const ArmPort& a) {
    Writer w(Kind::arm);
    w.number(static_cast<uint8_t>(a.at_first), 1);
    return w.bytes;
}
std::string pack_one(const ActOnPort& a) {
    Writer w(Kind::act);
    w.number(static_cast<uint8_t>(a.what), 1);
    return w.bytes;
}
std::string pack_one(const HoldFrames& h) {
    Writer w(Kind::hold);
    w.number(static_cast<uint8_t>(h.way), 1);
    w.number(h.follows, 1);
    return w.bytes;
}
std::string pack_one(const FeedFrames& f) {
    Writer w(Kind::feed);
    w.number(static_cast<uint64_t>(f.since.ns), 8);
    w.number(f.frames, 1);
    return w.bytes;
}
std::string pack_one(const TellHeld&) { return Writer(Kind::held).bytes; }
std::string pack_one(const ReleaseFrames& r) {
    Writer w(Kind::release);
    w.number(r.how.gives, 1);
    w.number(static_cast<uint64_t>(r.how.heard.ns), 8);
    w.number(static_cast<uint64_t>(r.how.spoke.ns), 8);
    return w.bytes;
}
std::string pack_one(const SayFrames& s) {
    Writer w(Kind::say);
    w.number(static_cast<uint8_t>(s.way), 1);
    return w.bytes;
}
std::string pack_one(const KeepPackets& k) {
    Writer w(Kind::keep);
    w.number(k.some, 1);
    return w.bytes;
}
std::string pack_one(const SeePacketsOfAll&) { return Writer(Kind::see).bytes; }
std::string pack_one(const EndRepair& e) {
    Writer w(Kind::mend);
    w.number(e.number, 4);
    return w.bytes;
}
std::string pack_one(const AdoptUsers& a) {
    Writer w(Kind::adopt);
    w.number(a.users.size(), 4);
    for (const RunsAs& one : a.users) w.user(one);
    w.number(a.more, 1);
    return w.bytes;
}

Asked read_asked(Reader& r) {
    switch (static_cast<Kind>(r.number(1))) {
        case Kind::program: return read_program(r);
        case Kind::capsule: return read_capsule(r);
        case Kind::criu: return read_criu(r);
        case Kind::open: return read_open(r);
        case Kind::port: return read_port(r);
        case Kind::take: return TakeDescriptor{static_cast<uint32_t>(r.number(4))};
        case Kind::settle: return SettleSockets{r.flag()};
        case Kind::status: return PutStatus{r.text(status_bytes_max)};
        case Kind::directory: return read_directory(r);
        case Kind::look: return read_look(r);
        case Kind::fit: return read_fit(r);
        case Kind::waits: return AskWaits{};
        case Kind::end: return EndProcess{};
        case Kind::connect: return ConnectInit{};
        case Kind::device: return read_device(r);
        case Kind::give: return GiveFiles{};
        case Kind::learn: return LearnKernel{};
        case Kind::inputs: return AddInputs{r.flag()};
        case Kind::own_file: return read_own_file(r);
        case Kind::cpu_event: return read_event(r);
        case Kind::adopt: return read_adopt(r);
        case Kind::arm: return read_arm(r);
        case Kind::act: return read_act(r);
        case Kind::hold: return read_hold(r);
        case Kind::feed: return read_feed(r);
        case Kind::held: return TellHeld{};
        case Kind::release: return read_release(r);
        case Kind::say: return read_say(r);
        case Kind::keep: return KeepPackets{r.flag()};
        case Kind::see: return SeePacketsOfAll{};
        case Kind::mend: return EndRepair{static_cast<uint32_t>(r.number(4))};
        case Kind::loaded: return AskLoaded{};
        default: r.whole = false; return {};
    }
}
}  // namespace

std::string pack(const Asked& asked) {
    return std::visit([](const auto& what) { return pack_one(what); }, asked);
}

std::string pack(const Told& told) {
    if (const auto* d = std::get_if<Done>(&told)) {
        Writer w(Kind::done);
        w.number(d->yes, 1);
        return w.bytes;
    }
    if (const auto* s = std::get_if<Started>(&told)) {
        Writer w(Kind::started);
        w.number(static_cast<uint32_t>(s->pid), 4);
        w.number(s->start_ticks, 8);
        return w.bytes;
    }
    const auto& r = std::get<Refused>(told);
    Writer w(Kind::refused);
    w.number(static_cast<uint32_t>(r.code), 4);
    w.text(std::string_view(r.why).substr(0, why_bytes_max));
    return w.bytes;
}

Result<Asked> parse_asked(std::string_view packet, size_t descriptors) {
    Reader r(packet);
    Asked asked = read_asked(r);
    if (!r.good()) return no_request();
    TRY(std::visit([&](const auto& what) { return check(what, descriptors); }, asked));
    return asked;
}

Result<Told> parse_told(std::string_view packet) {
    Reader r(packet);
    const auto kind = static_cast<Kind>(r.number(1));
    Told told;
    if (kind == Kind::started) {
        Started s;
        s.pid = static_cast<int32_t>(r.number(4));
        s.start_ticks = r.number(8);
        if (s.pid <= 0) r.whole = false;
        told = s;
    } else if (kind == Kind::done) {
        told = Done{r.flag()};
    } else {
        const auto code = static_cast<int32_t>(r.number(4));
        told = Refused{code, blank_controls(r.text(why_bytes_max))};
        if (kind != Kind::refused) r.whole = false;
    }
    if (!r.good()) return fail("a packet that is not one of souk-root");
    return told;
}

Status check_files_words(const std::vector<std::string>& words, size_t descriptors, bool session) {
    const auto wrong = [] { return fail("souk-files is not started so"); };
    for (const Form& form : forms) {
        if (words.empty() || words[0] != form.verb) continue;
        std::string_view kinds = form.words;
        const bool repeats = kinds.ends_with('*');
        if (repeats) kinds.remove_suffix(1);
        if (descriptors != form.descriptors || session != form.session) return wrong();
        const size_t count = words.size() - 1;
        if (repeats ? count + 1 < kinds.size() : count != kinds.size()) return wrong();
        for (size_t i = 0; i < count; ++i)
            if (!fits(kinds[std::min(i, kinds.size() - 1)], words[i + 1])) return wrong();
        return {};
    }
    return wrong();
}

FilesUser files_user(const std::vector<std::string>& words) {
    FilesUser user;
    for (const Form& form : forms) {
        if (words.empty() || words[0] != form.verb) continue;
        const std::string_view kinds = form.words;
        const size_t at = kinds.find("uu");
        if (at == kinds.npos || words.size() < at + 3) continue;
        user.owns = form.owns;
        user.as = {true,
                   whole_number<uint32_t>(words[at + 1]).value_or(no_id),
                   whole_number<uint32_t>(words[at + 2]).value_or(no_id),
                   {}};
        if (kinds.substr(at).starts_with("uug") && words.size() > at + 3)
            user.as.groups = groups_in(words[at + 3]);
    }
    return user;
}

}  // namespace souk::root
