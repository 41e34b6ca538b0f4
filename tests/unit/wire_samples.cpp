// SPDX-License-Identifier: GPL-2.0-or-later
#include "tests/unit/wire_samples.hpp"

namespace souk::unit {
namespace {

using namespace wire;

struct Dice {
    Rng& rng;
    bool flag() { return rng.chance(0.5); }
    uint64_t counter() { return flag() ? rng.below(1000) : rng.next() >> 2; }
    uint32_t u32() { return static_cast<uint32_t>(rng.next()); }
    int32_t i32() { return static_cast<int32_t>(u32()); }
    int64_t up_to(int64_t max) {
        return flag() ? rng.between(0, std::min<int64_t>(max, 300)) : rng.between(0, max);
    }
    NodeName node() {
        NodeName name(1, static_cast<char>('a' + rng.below(26)));
        for (uint64_t n = rng.below(32); n > 0; --n) name += "abcxyz019-"[rng.below(10)];
        return name;
    }
    NodeName node_or_none() { return flag() ? node() : NodeName(); }
    std::string address() {
        const auto one = [&] { return node() + ":" + std::to_string(rng.between(1, 65'535)); };
        return flag() ? one() : one() + " via " + one();
    }
    std::string line(size_t n_max = 1024) {
        std::string text;
        for (uint64_t n = rng.below(flag() ? 20 : n_max + 1); n > 0; --n)
            text += static_cast<char>(rng.between(0x20, 0x7e));
        return text;
    }
    Cause cause() { return {any(CauseCode::none, CauseCode::unsound), line()}; }
    std::string bytes(size_t n_max, char lo = '\0') {
        std::string text(rng.below(n_max + 1), '\0');
        for (char& c : text) c = static_cast<char>(lo + rng.below(255));
        return text;
    }
    JobId id() { return {node(), 1 + (rng.next() >> 3)}; }
    Epoch epoch() { return {counter()}; }
    wire::Stream stream() { return flag() ? wire::Stream::out : wire::Stream::err; }
    Peer peer() { return flag() ? Peer{node(), address()} : Peer{}; }
    template <class E>
    E any(E first, E last) {
        return static_cast<E>(rng.between(static_cast<int64_t>(first), static_cast<int64_t>(last)));
    }
    std::vector<NodeName> places() {
        std::vector<NodeName> all(rng.below(40));
        for (auto& name : all) name = node();
        return all;
    }
    std::vector<SitePart> parts() {
        std::vector<SitePart> all(rng.below(site_parts_max + 1));
        for (auto& one : all) one = {static_cast<int32_t>(rng.between(1, 65'536)), up_to(1 << 30)};
        return all;
    }
    std::vector<SiteRoom> rooms() {
        std::vector<SiteRoom> all(rng.below(site_rooms_max + 1));
        for (auto& one : all)
            one = {static_cast<int32_t>(rng.between(1, 65'536)),
                   up_to(1 << 30),
                   {up_to(money_max.micro)},
                   up_to(16'383),
                   {up_to(INT64_MAX / 10)}};
        return all;
    }
    JobTerms terms() {
        JobTerms t;
        t.max_price = {1 + up_to(money_max.micro - 1)};
        t.budget = {up_to(money_max.micro)};
        t.memory_mb = up_to(1 << 30);
        t.cpus = static_cast<int32_t>(rng.between(1, 65'536));
        t.finish = {up_to(1'000'000'000'000'000)};
        t.strategy = flag() ? "eager-2" : "";
        t.pace = flag();
        t.memory_by_default = flag();
        if (flag()) t.sites = SiteWish{"any", flag(), flag(), {up_to(money_max.micro)}};
        return t;
    }
    JobStats stats() {
        return {u32(),
                u32(),
                u32(),
                u32(),
                {up_to(INT64_MAX / 10)},
                {up_to(INT64_MAX / 10)},
                up_to(int64_t{1} << 60),
                LastMove{forecast(), {up_to(INT64_MAX / 10)}, {up_to(INT64_MAX / 10)}},
                u32(),
                {up_to(INT64_MAX / 10)},
                up_to(int64_t{1} << 60),
                u32()};
    }
    MoveForecast forecast() {
        return {any(MoveForm::stop_and_copy, MoveForm::post_copy),
                {up_to(INT64_MAX / 10)},
                {up_to(INT64_MAX / 10)},
                counter(),
                {up_to(INT64_MAX / 10)},
                u32(),
                counter(),
                counter(),
                counter(),
                counter()};
    }
    RunsAs as() { return {true, u32(), u32(), {u32(), u32()}}; }
    JobSpec spec() {
        JobSpec s;
        s.launch.argv.resize(1 + rng.below(20));
        for (auto& arg : s.launch.argv) arg = bytes(30, 1);
        s.launch.env.resize(rng.below(20));
        for (auto& entry : s.launch.env) entry = "K=" + bytes(30, 1);
        s.move = any(MovePolicy::automatic, MovePolicy::fast);
        s.net = any(NetMode::host, NetMode::own);
        s.tcp = s.net == NetMode::own ? TcpPolicy::keep : any(TcpPolicy::close, TcpPolicy::refuse);
        s.address = {u32()};
        s.checkpoint_every = {up_to(INT64_MAX / 10)};
        s.restart = flag();
        s.lease = {up_to(INT64_MAX / 10)};
        s.must_migrate = flag();
        s.files = any(FilesMode::local, FilesMode::home);
        s.files_auto = flag();
        s.file_systems = flag() ? line() : "";
        if (flag()) s.local_paths = {"/scratch", "/data/" + node()};
        s.tmp = any(FilesTmp::home, FilesTmp::shared);
        s.hold = flag();
        s.grace = {up_to(INT64_MAX / 10)};
        s.launch.path = "/bin/" + bytes(20, 1);
        s.launch.cwd = "/" + bytes(20, 1);
        s.launch.umask = static_cast<uint32_t>(rng.below(01000));
        for (int32_t i = 0; i < static_cast<int32_t>(rng.below(16)); ++i) {
            const uint64_t soft = rng.next();
            s.launch.rlimits.push_back({i, soft, flag() ? soft : UINT64_MAX});
        }
        s.launch.uid = u32();
        s.launch.gid = u32();
        s.launch.groups.resize(rng.below(10));
        for (auto& group : s.launch.groups) group = u32();
        s.user = flag() ? node() : "";
        if (flag()) s.as = as();
        s.launch.tty = flag();
        s.launch.rows = static_cast<uint16_t>(u32());
        s.launch.cols = static_cast<uint16_t>(u32());
        return s;
    }
};

}  // namespace

#define SAMPLE(T)                           \
    template <>                             \
    T sample<T>([[maybe_unused]] Rng & r) { \
        [[maybe_unused]] Dice d{r};
#define END }

SAMPLE(Hello)
const Role role = d.any(Role::agent, Role::site);
const bool may_lack = role == Role::tool || role == Role::site;
return {hello_magic, d.u32(),  role,        may_lack ? d.node_or_none() : d.node(),     d.address(),
        d.flag(),    d.flag(), d.line(255), role == Role::site ? d.node() : d.line(64), d.flag(),
        d.u32()};
END SAMPLE(Welcome) return {d.u32(),    d.line(255), d.flag() ? d.address() : "",
                            d.flag(),   d.flag(),    {d.up_to(INT64_MAX / 4)},
                            d.line(255)};
END SAMPLE(ErrorText) return {d.cause()};
END SAMPLE(Ok) return {};
END SAMPLE(CtlRequest) CtlRequest v{r.next(), d.u32(), d.line(), {}, d.line()};
v.args.resize(r.below(17));
for (auto& arg : v.args) arg = d.line();
return v;
END SAMPLE(CtlReply) return {r.next(), d.flag(), d.cause(), d.bytes(5000), d.line(), d.flag()};
END SAMPLE(Join) return {d.bytes(8), d.bytes(32), d.bytes(2000)};
END SAMPLE(Renew) return {d.bytes(2000)};
END SAMPLE(Certified) return {
    d.bytes(5000), d.bytes(5000), d.bytes(4096), {d.up_to(INT64_MAX / 10)}};
END SAMPLE(Revoked) return {d.bytes(5000)};
END SAMPLE(TicketKeys) return {d.bytes(4096), {d.up_to(INT64_MAX / 10)}, d.bytes(4096)};
END SAMPLE(JobReport) return {d.id(),
                              d.terms(),
                              d.u32(),
                              d.line(255),
                              d.line(255),
                              d.line(),
                              {d.up_to(INT64_MAX / 4)},
                              d.any(JobPhase::waiting, JobPhase::finished),
                              d.node_or_none(),
                              d.node_or_none(),
                              d.epoch(),
                              d.counter(),
                              d.line(),
                              d.flag(),
                              d.line(),
                              d.flag(),
                              {d.u32()},
                              static_cast<int32_t>(r.below(1 << 22)),
                              d.node_or_none(),
                              {d.up_to(INT64_MAX / 4)},
                              d.up_to(int64_t{1} << 60),
                              d.line(),
                              d.stats(),
                              {d.up_to(1'000'000) - 1},
                              {d.up_to(1'000'000)},
                              d.places(),
                              d.places(),
                              d.places(),
                              d.line(),
                              d.flag(),
                              d.i32(),
                              d.line(),
                              {d.up_to(INT64_MAX / 4)},
                              d.line(255),
                              d.u32(),
                              d.line(255),
                              FilesUse{d.flag(), d.counter(), d.counter(), d.counter(), d.line()},
                              d.line(),
                              d.line(),
                              d.line(255),
                              d.u32(),
                              d.u32(),
                              d.flag(),
                              d.node_or_none(),
                              d.u32(),
                              d.flag()};
END SAMPLE(ProviderReport) return {d.node(),
                                   d.flag(),
                                   {d.up_to(money_max.micro)},
                                   r.between(1, 1'000'000),
                                   static_cast<int32_t>(r.between(1, 65'536)),
                                   d.up_to(1 << 30),
                                   d.up_to(1 << 30),
                                   static_cast<int32_t>(r.between(0, 1000)),
                                   static_cast<int32_t>(r.between(0, 100'000)),
                                   d.line(255),
                                   {d.line(255), d.line(255), d.line(255), d.counter(), d.line()},
                                   d.line(),
                                   d.line(),
                                   {d.up_to(INT64_MAX / 4)},
                                   d.line(255),
                                   d.flag(),
                                   d.flag(),
                                   static_cast<int32_t>(r.between(0, 1000))};
END SAMPLE(UseReport) UseReport v;
v.jobs.resize(r.below(20));
for (auto& use : v.jobs)
    use = {d.id(), d.epoch(), {d.up_to(INT64_MAX / 10)}, {d.up_to(INT64_MAX / 10)}, d.flag()};
v.sends.resize(r.below(4));
for (auto& send : v.sends)
    send = {d.id(),           d.epoch(),
            d.node(),         static_cast<uint64_t>(d.up_to(1 << 30)),
            r.below(1 << 30), {d.up_to(INT64_MAX / 10)}};
return v;
END SAMPLE(OrderFailed) return {d.id(), d.counter(), d.node_or_none(), d.line()};
END SAMPLE(Order) const Order::Kind kind = d.any(Order::Kind::run, Order::Kind::give_up);
Order v{d.id(),   d.counter(),  kind,     d.node(), d.address(), {d.up_to(money_max.micro)},
        d.line(), d.bytes(500), d.flag(), d.flag(), d.flag()};
v.source_ticket = d.bytes(500);
return v;
END SAMPLE(Ticket) Ticket v{d.id(),
                            d.counter(),
                            d.u32(),
                            d.line(255),
                            d.node_or_none(),
                            d.node(),
                            d.address(),
                            static_cast<int32_t>(r.between(1, 65'536)),
                            d.up_to(1 << 30),
                            {},
                            {d.up_to(INT64_MAX / 4)},
                            {d.up_to(INT64_MAX / 4)}};
v.keys.resize(r.below(4));
for (auto& key : v.keys) key = d.bytes(64);
v.realm = d.line(255);
v.account = d.line(255);
return v;
END SAMPLE(JobNote) return {
    d.id(),      {d.up_to(money_max.micro)}, {d.up_to(INT64_MAX / 10)}, d.line(),
    d.flag(),    {d.up_to(INT64_MAX / 10)},  {d.up_to(INT64_MAX / 10)}, {d.up_to(INT64_MAX / 10)},
    d.line(255), {d.up_to(INT64_MAX / 10)}};
END SAMPLE(ProviderNote) ProviderNote v{{d.up_to(INT64_MAX / 10)},
                                        {d.up_to(INT64_MAX / 10)},
                                        {d.up_to(INT64_MAX / 10)},
                                        static_cast<int32_t>(r.between(0, INT32_MAX)),
                                        {}};
v.of_market.resize(r.below(4));
for (auto& name : v.of_market) name = d.node();
return v;
END SAMPLE(Directory) Directory v;
v.peers.resize(r.below(50));
for (auto& peer : v.peers) peer = {d.node(), d.address()};
return v;
END SAMPLE(NodeLost) return {d.node()};
END SAMPLE(SiteTerms) return {
    static_cast<int32_t>(d.up_to(65'536)),
    d.places(),
    d.places(),
    d.line(),
    {d.up_to(money_max.micro)},
    d.flag() ? std::optional(Money{d.up_to(money_max.micro)}) : std::nullopt};
END SAMPLE(SiteAsk) return {d.counter(),   d.id(),   d.node(), d.terms(), {d.up_to(INT64_MAX / 10)},
                            d.line(1'024), d.parts()};
END SAMPLE(SiteOffer) return {d.counter(),
                              d.cause(),
                              {d.up_to(money_max.micro)},
                              d.up_to(16'383),
                              {d.up_to(INT64_MAX / 10)},
                              {d.up_to(INT64_MAX / 10)},
                              d.rooms()};
END SAMPLE(PeerSites) return {d.line(255), d.places()};
END SAMPLE(SiteJob) SiteJob v{sample<JobReport>(r), d.node_or_none(), d.address(), d.counter(),
                              d.line(1'024)};
return v;
END SAMPLE(SiteFailed) SiteFailed v{sample<OrderFailed>(r)};
return v;
END SAMPLE(SiteOrder) SiteOrder v{sample<Order>(r), d.counter()};
return v;
END SAMPLE(SiteNote) SiteNote v{sample<JobNote>(r), d.cause(), d.counter()};
return v;
END SAMPLE(SiteAccount) return {d.counter(),
                                d.line(64),
                                {d.up_to(INT64_MAX / 10)},
                                {d.counter(), {d.up_to(INT64_MAX / 10)}, d.line(120), d.flag()},
                                d.counter(),
                                d.flag()};
END SAMPLE(SiteWords) SiteWords v;
v.words.resize(r.below(SiteWords::words_max + 1));
for (SiteWord& word : v.words) {
    word = {d.line(40), d.line(64), {d.up_to(INT64_MAX / 4)}, d.u32(), d.up_to(1 << 30), d.u32(),
            d.u32(),    {}};
    word.some.resize(r.below(SiteWord::nodes_max + 1));
    for (NodeWord& node : word.some)
        node = {d.node(),
                static_cast<int32_t>(r.between(1, 65'536)),
                d.up_to(16'383),
                d.up_to(1 << 30),
                d.up_to(1 << 30),
                static_cast<int32_t>(r.between(0, 1'000'000'000)),
                {d.up_to(money_max.micro)}};
}
return v;
END SAMPLE(GuestCommand) GuestCommand v{d.id(),
                                        d.epoch(),
                                        d.any(GuestVerb::query, GuestVerb::checkpoint),
                                        {},
                                        d.node(),
                                        d.address(),
                                        {},
                                        d.up_to(1 << 30),
                                        static_cast<int32_t>(r.between(1, 65'536)),
                                        static_cast<int32_t>(r.between(1, 64)),
                                        d.flag(),
                                        d.flag(),
                                        d.node_or_none(),
                                        d.bytes(500),
                                        d.flag() ? std::string(64, 'a') : "",
                                        d.flag() ? std::string(64, 'b') : ""};
v.new_epoch = {v.epoch.n + 1 + r.below(9)};
v.cut = d.any(Cut::none, Cut::checkpoint);
v.to_all = d.flag();
v.not_restored = d.flag();
if (v.verb == GuestVerb::start || v.verb == GuestVerb::prepare || v.verb == GuestVerb::keep ||
    d.flag())
    v.spec = d.spec();
return v;
END SAMPLE(GuestEvent) GuestEvent v{d.id(),
                                    d.epoch(),
                                    d.any(GuestState::unknown, GuestState::filling),
                                    d.i32(),
                                    static_cast<int32_t>(r.below(4096)),
                                    d.flag(),
                                    d.line(),
                                    d.up_to(int64_t{1} << 60),
                                    d.flag(),
                                    {},
                                    d.line(),
                                    static_cast<int32_t>(r.below(1 << 22)),
                                    d.flag(),
                                    d.flag(),
                                    d.flag(),
                                    d.epoch(),
                                    {d.up_to(INT64_MAX / 10)},
                                    {d.counter(), d.counter()},
                                    d.counter(),
                                    {},
                                    d.flag()};
if (v.state == GuestState::dumping) v.forecast = d.forecast();
if (d.flag()) v.as = d.as();
v.no_user = d.flag();
v.all_stand = d.flag();
v.must_leave = d.flag();
v.went_on = d.flag();
v.memory_peak = d.up_to(int64_t{1} << 60);
return v;
END SAMPLE(Expel) return {d.id(), d.epoch()};
END SAMPLE(Heartbeat) return {{d.up_to(INT64_MAX / 10)}};
END SAMPLE(StdioData) return {d.id(), d.epoch(), d.stream(), d.counter(), d.bytes(stdio_bytes_max)};
END SAMPLE(StdioAck) return {d.id(), d.epoch(), d.stream(), d.counter(), d.flag()};
END SAMPLE(StdioInput) return {d.id(), d.epoch(), d.counter(), d.bytes(500), d.flag()};
END SAMPLE(StdioInputAck) return {d.id(), d.epoch(), d.counter()};
END SAMPLE(StdioWinch) return {d.id(), d.epoch(), static_cast<uint16_t>(d.u32()),
                               static_cast<uint16_t>(d.u32())};
END SAMPLE(ImageBegin) const Epoch from = d.epoch();
return {d.id(),
        {from.n + 1},
        from,
        d.node(),
        d.any(MoveForm::stop_and_copy, MoveForm::post_copy),
        d.flag() ? std::string(24, '7') : ""};
END SAMPLE(PagesState) PagesState v{d.counter(), d.flag(), {}};
for (uint64_t i = r.below(4); i > 0; --i)
    v.wishes.push_back({static_cast<int32_t>(1 + r.below(1000)), r.below(1 << 30) * page_bytes,
                        1 + r.below(99)});
return v;
END SAMPLE(FilesBegin) return {d.id(), d.epoch()};
END SAMPLE(PrecopyBegin) return {d.id(), d.epoch(), d.node(), d.counter()};
END SAMPLE(GatewayOffer) return {};
END SAMPLE(GatewayAsk) return {d.counter(), d.node(), d.flag() ? d.address() : ""};
END SAMPLE(GatewayAnswer) return {d.counter(), d.line(64), d.cause()};
END SAMPLE(GatewayCall) return {d.line(64)};
END SAMPLE(ImageResult) return {d.id(), d.epoch(), d.flag(), d.line()};
END SAMPLE(Submit) return {
    d.spec(),
    d.terms(),
    d.line(255),
    d.flag(),
    r.next(),
    d.flag(),
    {d.counter(), d.flag(), d.counter(), d.flag(), d.u32(), d.u32(), d.counter(), d.u32(), d.u32(),
     d.flag(), d.u32(), d.any(ComponentClass::required, ComponentClass::optional), d.node_or_none(),
     d.u32(), d.flag()},
    d.line(),
    d.line(),
    d.flag()};
END SAMPLE(Submitted) return {d.id(), d.line(), d.flag(), d.flag(), d.flag()};
END SAMPLE(Attach) return {d.id(), d.flag(), {d.counter(), d.counter()}, d.flag()};
END SAMPLE(Attached) return {d.id(),
                             d.any(JobPhase::waiting, JobPhase::finished),
                             d.flag(),
                             d.counter(),
                             {d.counter(), d.counter()}};
END SAMPLE(Change) Change v{d.id(), static_cast<uint32_t>(r.between(1, Change::all)), {}};
const JobTerms terms = d.terms();
v.terms = changed(v.terms, Change{v.id, v.fields, terms});
return v;
END SAMPLE(Output) return {d.stream(), d.counter(), d.bytes(500)};
END SAMPLE(OutputAck) return {d.stream(), d.counter()};
END SAMPLE(Input) return {d.counter(), d.bytes(500), d.flag()};
END SAMPLE(InputAck) return {d.counter()};
END SAMPLE(Winch) return {static_cast<uint16_t>(d.u32()), static_cast<uint16_t>(d.u32())};
END SAMPLE(Signal) return {static_cast<int32_t>(r.between(1, 64))};
END SAMPLE(Notice) return {d.any(home::Tell::What::started, home::Tell::What::warning), d.line()};
END SAMPLE(Meter) return {d.any(JobPhase::waiting, JobPhase::finished),
                          d.node_or_none(),
                          {d.up_to(money_max.micro)},
                          {d.up_to(INT64_MAX / 10)},
                          static_cast<int32_t>(r.between(1, 65'536)),
                          d.flag()};
END SAMPLE(Exit) return {d.i32(), d.flag(), d.line(), "{\"id\":\"" + d.line() + "\"}"};
END SAMPLE(HomeJob) HomeJob v{
    d.id(),
    d.spec(),
    d.terms(),
    d.line(255),
    d.line(255),
    {d.up_to(INT64_MAX / 4)},
    d.any(JobPhase::waiting, JobPhase::finished),
    d.peer(),
    d.epoch(),
    d.peer(),
    d.epoch(),
    d.epoch(),
    d.any(MoveStep::none, MoveStep::release),
    d.flag(),
    d.counter(),
    d.flag(),
    d.stats(),
    d.places(),
    d.line(),
    d.i32(),
    d.line(),
    {d.up_to(INT64_MAX / 10)},
    {d.up_to(money_max.micro)},
    d.flag(),
    r.next(),
    {},
    {d.up_to(INT64_MAX / 10)},
    d.flag(),
    d.flag(),
    {d.peer(),
     d.epoch(),
     {d.up_to(INT64_MAX / 4)},
     d.up_to(int64_t{1} << 60),
     {d.counter(), d.counter()},
     d.counter()},
    {d.peer(), d.epoch()},
    {d.flag(), {d.counter(), d.counter()}, d.counter(), d.counter(), d.line()},
    {d.up_to(1'000'000) - 1},
    {d.up_to(1'000'000) - 1},
    Nanos::never(),
    r.next(),
    {d.up_to(INT64_MAX / 10)},
    {d.up_to(INT64_MAX / 10)},
    {d.up_to(INT64_MAX / 10)},
    d.places(),
    d.i32(),
    d.line(),
    d.flag()};
for (uint64_t n = r.below(5); n > 0; --n) v.orphans.push_back({d.peer(), d.epoch()});
if (d.flag()) v.running_since = {1 + d.up_to(1'000'000)};
const auto part = [&] { return Nanos{d.up_to(INT64_MAX / 10) - 1}; };
std::vector<StoryStep> story;
for (uint64_t n = r.below(5); n > 0; --n)
    story.push_back({d.any(StoryStep::What::submitted, StoryStep::What::finished),
                     {d.up_to(INT64_MAX / 4)},
                     d.node_or_none(),
                     d.node_or_none(),
                     {d.up_to(money_max.micro)},
                     d.any(MoveForm::stop_and_copy, MoveForm::post_copy),
                     d.counter(),
                     d.counter(),
                     part(),
                     part(),
                     part(),
                     part(),
                     part(),
                     d.u32(),
                     part(),
                     d.line(Story::why_max),
                     d.u32()});
v.story = {std::move(story), d.u32()};
v.ticket = d.bytes(500);
v.cut = d.any(CutStep::none, CutStep::held);
v.out_file = d.line();
v.err_file = d.line();
v.files_use = {d.flag(), d.counter(), d.counter(), d.counter(),
               d.line(), d.counter(), d.counter(), Nanos{d.up_to(1LL << 50)}};
return v;
END SAMPLE(GuestJob) return {{d.id(), d.epoch()},
                             d.spec(),
                             d.up_to(1 << 30),
                             static_cast<int32_t>(r.between(1, 65'536)),
                             d.any(GuestState::unknown, GuestState::filling),
                             d.flag(),
                             d.flag(),
                             d.flag(),
                             d.flag(),
                             d.flag(),
                             d.up_to(int64_t{1} << 60),
                             d.i32(),
                             d.flag()};
END

}  // namespace souk::unit
