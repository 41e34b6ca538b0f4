// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/root/requests.hpp"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "agentd/root/files_words.hpp"
#include "kernel/base/packing.hpp"
#include "kernel/base/text.hpp"
#include "kernel/sys/host/cpu_event.hpp"
#include "kernel/sys/net/descriptors.hpp"

namespace souk::root {
namespace {

// -------------------------------------------------------------------------------------------------
// The fields of a request are named once, in their order (fields()). Packing puts them behind each
// other; Unpacking takes them off, and sees that each is one that may be.

class Packing {
  public:
    explicit Packing(uint8_t kind) { out_.number(kind, 1); }
    template <class Number>
    void number(Number value, size_t width) {
        out_.number(static_cast<uint64_t>(value), width);
    }
    template <class Enum>
    void choice(Enum value, Enum, uint64_t = 1) {
        number(value, 1);
    }
    void flag(bool value) { number(value, 1); }
    void text(std::string_view value, size_t) { out_.text(value); }
    template <class Item, class Each>
    void list(std::vector<Item>& all, size_t, const Each& each) {
        number(all.size(), 4);
        for (Item& one : all) each(one);
    }
    void known(RunsAs&) {}
    void must(bool) {}
    std::string take() { return std::move(out_.bytes); }

  private:
    PackWriter out_;
};

class Unpacking {
  public:
    explicit Unpacking(std::string_view packet) : in_{packet} {}
    template <class Number>
    void number(Number& value, size_t width) {
        value = static_cast<Number>(in_.number(width));
    }
    template <class Enum>
    void choice(Enum& value, Enum last, uint64_t first = 1) {
        const uint64_t said = in_.number(1);
        must(said >= first && said <= static_cast<uint64_t>(last));
        value = static_cast<Enum>(said);
    }
    void flag(bool& value) {
        const uint64_t said = in_.number(1);
        must(said <= 1);
        value = said == 1;
    }
    void text(std::string& value, size_t most) { value = in_.text(most); }
    template <class Item, class Each>
    void list(std::vector<Item>& all, size_t most, const Each& each) {
        const uint64_t count = in_.number(4);
        must(count <= most);
        for (uint64_t i = 0; i < count && in_.whole; ++i) each(all.emplace_back());
    }
    void known(RunsAs& as) { as.known = true; }
    void must(bool is_so) { in_.whole = in_.whole && is_so; }
    bool good() const { return in_.good(); }

  private:
    PackReader in_;
};

// A word of a program has no zero within.
template <class Io>
void word(Io& io, std::string& one) {
    io.text(one, word_bytes_max);
    io.must(one.find('\0') == one.npos);
}
template <class Io>
void words(Io& io, std::vector<std::string>& all) {
    io.list(all, words_max, [&](std::string& one) { word(io, one); });
}
template <class Io>
void pids(Io& io, std::vector<int32_t>& all) {
    io.list(all, pids_max, [&](int32_t& one) {
        io.number(one, 4);
        io.must(one > 0);
    });
}
template <class Io>
void user(Io& io, RunsAs& as) {
    io.known(as);
    io.number(as.uid, 4);
    io.number(as.gid, 4);
    io.list(as.groups, groups_max, [&](uint32_t& one) { io.number(one, 4); });
}
template <class Io>
void moment(Io& io, Nanos& at) {
    io.number(at.ns, 8);
}

// "sj", and 48 bits.
bool names_port(std::string_view name) {
    constexpr size_t bytes = 14;
    return name.size() == bytes && name.starts_with("sj") &&
           name.find_first_not_of("0123456789abcdef", 2) == name.npos;
}

template <class Io, class Request>
requires std::is_empty_v<Request>
void fields(Io&, Request&) {}

template <class Io>
void fields(Io& io, StartProgram& p) {
    io.choice(p.program, Program::files);
    words(io, p.words);
    io.flag(p.session);
}
template <class Io>
void fields(Io& io, MakeCapsule& c) {
    for (bool* flag : {&c.own_net, &c.private_tmp, &c.check_access, &c.home_tree, &c.hosts,
                       &c.files, &c.cgroup, &c.own})
        io.flag(*flag);
    user(io, c.user);
    io.text(c.ticket, ticket_bytes_max);
    words(io, c.laid_over);
    words(io, c.hidden);
    word(io, c.run_keep);
}
template <class Io>
void fields(Io& io, StartCriu& c) {
    io.flag(c.restores);
    io.flag(c.cgroup);
    io.flag(c.limited);
    io.number(c.ends, 1);
}
template <class Io>
void fields(Io& io, OpenFile& o) {
    io.choice(o.file, process_file_last);
}
template <class Io>
void fields(Io& io, TakeDescriptor& t) {
    io.number(t.number, 4);
}
template <class Io>
void fields(Io& io, SettleSockets& s) {
    io.flag(s.runs);
}
template <class Io>
void fields(Io& io, PutStatus& p) {
    io.text(p.text, status_bytes_max);
}
template <class Io>
void fields(Io& io, OpenDirectory& d) {
    io.choice(d.which, CapsuleDirectory::run);
}
template <class Io>
void fields(Io& io, LookInside& l) {
    for (bool* flag : {&l.what.states, &l.what.mapped, &l.what.kinds, &l.what.infos, &l.what.maps,
                       &l.what.sums, &l.what.runs})
        io.flag(*flag);
    io.number(l.what.files_max, 4);
    pids(io, l.pids);
}
template <class Io>
void fields(Io& io, FitRestored& f) {
    pids(io, f.pids);
    io.list(f.limits, limits_max, [&](auto& limit) {
        io.number(limit.first, 1);
        io.number(limit.second, 8);
        io.must(limit.first < limits_max);
    });
}
template <class Io>
void fields(Io& io, OpenOfMachine& o) {
    io.choice(o.which, device_last);
}
template <class Io>
void fields(Io& io, AddInputs& a) {
    io.flag(a.pseudo);
}
template <class Io>
void fields(Io& io, OpenOwnFile& o) {
    io.choice(o.file, OwnFile::users);
}
template <class Io>
void fields(Io& io, OpenEvent& e) {
    io.number(e.cpu, 2);
    io.number(e.every_us, 4);
    const Nanos every{int64_t{e.every_us} * 1'000};
    io.must(e.cpu < cpus_most &&
            (every.ns == 0 || (every >= cpu_clock_least && every <= cpu_clock_most)));
}
template <class Io>
void fields(Io& io, AdoptUsers& a) {
    io.list(a.users, adopted_max, [&](RunsAs& one) { user(io, one); });
    io.flag(a.more);
}
template <class Io>
void fields(Io& io, MakePort& p) {
    io.flag(p.plan.found);
    io.flag(p.plan.shut);
    io.number(p.plan.address.n, 4);
    word(io, p.plan.name);
    io.must(names_port(p.plan.name) && p.plan.address && !(p.plan.found && p.plan.shut));
}
template <class Io>
void fields(Io& io, ArmPort& a) {
    io.choice(a.at_first, Gate::begins_nothing, 0);
}
template <class Io>
void fields(Io& io, ActOnPort& a) {
    io.choice(a.what, PortAct::be_as_always);
}
template <class Io>
void fields(Io& io, HoldFrames& h) {
    io.choice(h.way, FrameWay::from_job, 0);
    io.flag(h.follows);
    io.must(!h.follows || h.way == FrameWay::to_job);
}
template <class Io>
void fields(Io& io, FeedFrames& f) {
    moment(io, f.since);
    io.flag(f.frames);
}
template <class Io>
void fields(Io& io, ReleaseFrames& r) {
    io.flag(r.how.gives);
    moment(io, r.how.heard);
    moment(io, r.how.spoke);
}
template <class Io>
void fields(Io& io, SayFrames& s) {
    io.number(s.way, 1);
    io.must(s.way == FrameWay::to_job || s.way == FrameWay::within);
}
template <class Io>
void fields(Io& io, EndRepair& e) {
    io.number(e.number, 4);
}
template <class Io>
void fields(Io& io, KeepPackets& k) {
    io.flag(k.some);
}

template <class Io>
void fields(Io& io, Started& s) {
    io.number(s.pid, 4);
    io.number(s.start_ticks, 8);
    io.must(s.pid > 0);
}
template <class Io>
void fields(Io& io, Refused& r) {
    io.number(r.code, 4);
    io.text(r.why, why_bytes_max);
}
template <class Io>
void fields(Io& io, Done& d) {
    io.flag(d.yes);
}

// -------------------------------------------------------------------------------------------------
// what may be asked, beside its fields

Status check_one(size_t descriptors, size_t wanted) {
    return descriptors == wanted ? Status{} : Status(fail("a request with other descriptors"));
}
template <class Request>
Status check(const Request&, size_t descriptors) {
    return check_one(descriptors, Request::descriptors);
}
Status check(const OpenFile&, size_t n) {
    return n == 0 || n > descriptors_max ? check_one(n, 1) : Status{};
}
Status check(const FeedFrames& f, size_t n) { return check_one(n, 1U + f.frames); }
Status check(const KeepPackets& k, size_t n) { return check_one(n, k.some ? 2 : 0); }
Status check(const StartProgram& p, size_t descriptors) {
    if (p.program == Program::files) return check_files_words(p.words, descriptors, p.session);
    if (!p.words.empty() || p.session || descriptors != 1)
        return fail("a program that takes no words and one socket");
    return {};
}

// Returns how many descriptors each request has at least. Those of v1 groups follow.
size_t descriptors_of(const MakeCapsule& c) { return 1U + (c.files ? 2U : 0U) + c.cgroup; }
size_t descriptors_of(const StartCriu& c) { return 3U + !c.restores + c.cgroup + c.ends; }

bool is_nobody(const RunsAs& as) {
    return as.uid == no_id || as.gid == no_id || std::ranges::count(as.groups, no_id) > 0;
}

// Tells whether the path has a "..": links on its way may then lead elsewhere than a comparison of
// names says.
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

// -------------------------------------------------------------------------------------------------
// packets

// `all` is of one of these kinds, and no two of them have the same number.
template <class... Kinds>
std::string packed(std::variant<Kinds...> all) {
    static constexpr uint8_t kinds[] = {Kinds::kind...};
    static_assert([&] {
        for (const uint8_t& one : kinds)
            for (const uint8_t& other : kinds)
                if (&one != &other && one == other) return false;
        return true;
    }());
    return std::visit(
        [](auto& one) {
            Packing to(one.kind);
            fields(to, one);
            return to.take();
        },
        all);
}

template <class... Kinds>
void unpack(Unpacking& from, std::variant<Kinds...>& all) {
    uint8_t kind = 0;
    from.number(kind, 1);
    const auto is = [&]<class Kind>(std::type_identity<Kind>) {
        if (Kind::kind != kind) return false;
        fields(from, all.template emplace<Kind>());
        return true;
    };
    from.must((is(std::type_identity<Kinds>{}) || ...));
}

}  // namespace

std::string pack(const Asked& asked) { return packed(asked); }

std::string pack(const Told& told) {
    Told short_one = told;
    if (auto* refused = std::get_if<Refused>(&short_one))
        refused->why = refused->why.substr(0, why_bytes_max);
    return packed(std::move(short_one));
}

Result<Asked> parse_asked(std::string_view packet, size_t descriptors) {
    Unpacking from(packet);
    Asked asked;
    unpack(from, asked);
    if (!from.good()) return fail("a packet that is no request");
    TRY(std::visit([&](const auto& what) { return check(what, descriptors); }, asked));
    return asked;
}

Result<Told> parse_told(std::string_view packet) {
    Unpacking from(packet);
    Told told;
    unpack(from, told);
    if (!from.good()) return fail("a packet that is not one of souk-root");
    if (auto* refused = std::get_if<Refused>(&told)) refused->why = blank_controls(refused->why);
    return told;
}

}  // namespace souk::root
