// SPDX-License-Identifier: GPL-2.0-or-later
// Fleet: thousands of agents in one process, each with a connection of its own to a real marketd
// over market/wire, a provider that is reported every second and the jobs of a home. They do what
// agentd says to a market, without running anything: an order is carried out a moment later. Owned
// by a benchmark; one loop, one thread.
//
// It takes the time from each event that changes the allocation (a submission, a bid, a job's end,
// put into the socket at the end of the loop's iteration) to the first order that follows from it.
#pragma once

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernel/base/check.hpp"
#include "kernel/base/retry.hpp"
#include "kernel/base/rng.hpp"
#include "kernel/sys/loop/loop.hpp"
#include "kernel/wire/channel.hpp"
#include "kernel/wire/tls.hpp"
#include "market/wire/codec.hpp"

namespace souk::bench {

struct FleetOptions {
    size_t agents = 5'000;
    // kinds of machines, up to 4; with one, an event leads to its orders at once
    size_t speeds = 1;
    int32_t cpus = 1;                      // of each machine
    size_t jobs = 8'000;                   // live ones, once it stands
    int events_per_s = 0;                  // of each kind: submissions with ends, and changed bids
    Nanos carry_out = Nanos::from_ms(20);  // from an order to its end
    std::string address = "127.0.0.1";
    uint16_t port = 0;
    uint64_t seed = 1;
    // Makes the TLS session of an agent from its name. Without it, connections are plain.
    std::function<std::unique_ptr<wire::Tls>(const std::string& name)> tls = {};
};

class Fleet {
  public:
    Fleet(Loop& loop, FleetOptions options)
        : loop_(loop), options_(std::move(options)), rng_(options_.seed) {
        for (size_t i = 0; i < options_.agents; ++i)
            agents_.push_back(std::make_unique<Agent>(i, rng_.next()));
        for (auto& agent : agents_) {
            if (options_.tls) agent->tls = options_.tls(agent->node);
            fill(agent->offer, agent->number);
        }
    }

    void connect_all() {
        for (auto& agent : agents_) connect(*agent);
    }
    // Reports and events from now on.
    void start() {
        tick_ = 0;
        due_ = Loop::now();
        tick();
    }
    // Keeps as many jobs as there may be: each running job ends at once, and another one comes.
    void churn() { churning_ = true; }
    void set_events(int per_s) { options_.events_per_s = per_s; }
    void set_reports(bool on) { reports_ = on; }
    // Submits `n` jobs in one go, on homes in turn; their bids grow or fall at random.
    void submit(size_t n) {
        for (size_t i = 0; i < n; ++i) submit_one(i, rng_.between(100, 1'000), false);
    }
    // Ends the jobs that run, at most `n` of them.
    size_t finish(size_t n) {
        size_t done = 0;
        for (; done < n && !running_.empty(); ++done) finish_one(running_.back());
        return done;
    }

    size_t welcomed() const { return welcomed_; }
    size_t live() const { return jobs_.size(); }
    size_t running() const { return running_.size(); }
    uint64_t sent() const { return sent_; }
    uint64_t orders() const { return orders_; }
    uint64_t settled() const { return settled_; }
    uint64_t refused() const { return refused_; }
    uint64_t attempts() const { return attempts_; }
    const std::string& last_refusal() const { return last_refusal_; }
    std::vector<int64_t> take_latencies_ns() { return std::exchange(latencies_, {}); }
    uint64_t unanswered() const { return awaited_.size() + awaited_places_.size(); }
    void forget_awaited() {
        awaited_.clear();
        awaited_places_.clear();
    }
    void drop_all() {
        for (auto& agent : agents_) lost(*agent, "dropped");
    }

  private:
    struct Agent {
        Agent(size_t n, uint64_t seed)
            : number(n),
              node("n" + std::to_string(n + 1)),
              pause(Nanos::from_ms(50), Nanos::from_s(2), seed) {}
        size_t number;
        NodeName node;
        RetryPause pause;
        std::unique_ptr<wire::Tls> tls;
        std::unique_ptr<wire::Channel> channel;
        Connect connecting;
        Timer retry;
        ProviderReport offer;
        uint64_t next_seq = 1;
        bool welcomed = false;
        std::vector<JobId> jobs;
    };
    struct Job {
        JobReport report;
        size_t home = 0;
        size_t place_in_running = SIZE_MAX;
        Nanos run_since;
    };

    void fill(ProviderReport& p, size_t i) {
        p.node = agents_[i]->node;
        p.on_market = true;
        p.reserve = Money::units(1);
        p.speed = std::array<int64_t, 4>{100, 80, 60, 50}[i % options_.speeds];
        p.cpus = options_.cpus;
        p.memory_mb = p.free_mb = 4'000 * options_.cpus;
        p.load_source = "bpf";
        p.machine = {"x86_64", "6.1.0-18-amd64", "4.0", 4096, {}};
        for (int f = 0; f < 140; ++f)
            p.machine.cpu_features += (f ? " feature" : "feature") + std::to_string(f);
    }

    // ---- connections

    void connect(Agent& a) {
        ++attempts_;
        auto connecting = loop_.connect(
            value(Address::parse(options_.address + ":" + std::to_string(options_.port))),
            Nanos::from_s(3), [this, &a](Result<Fd> fd) { connected(a, std::move(fd)); });
        if (!connecting) return lost(a, connecting.error().message);
        a.connecting = std::move(*connecting);
    }
    void connected(Agent& a, Result<Fd> fd) {
        a.connecting.close();
        if (!fd) return lost(a, fd.error().message);
        wire::ChannelHandlers handlers;
        handlers.on_frame = [this, &a](const wire::Frame& f) { frame(a, f); };
        handlers.on_closed = [this, &a](const Error& e) { lost(a, e.message); };
        wire::ChannelOptions options;
        options.words = wire::market_words;
        options.side = wire::Side::connector;
        options.send_queue_bytes_max = 64 << 20;
        auto channel =
            wire::Channel::open(loop_, std::move(*fd), std::move(handlers), options,
                                wire::connector(a.tls.get(), trust::only(trust::Role::market), {}));
        if (!channel) return lost(a, channel.error().message);
        a.channel = std::move(*channel);
        wire::Hello hello;
        hello.role = wire::Role::agent;
        hello.node = a.node;
        hello.address = "127.0.0.1:7071";
        (void)a.channel->send(wire::frame::hello, wire::pack(hello));
    }
    void lost(Agent& a, const std::string& why) {
        a.channel.reset();
        if (std::exchange(a.welcomed, false)) --welcomed_;
        ++refused_;
        last_refusal_ = why;
        a.retry = loop_.after(a.pause.next(), [this, &a] { connect(a); });
    }
    template <class T>
    void send(Agent& a, const T& message) {
        if (!a.welcomed) return;
        ++sent_;
        const Status sent = a.channel->send(wire::frame_type<T>, wire::pack(message));
        if (!sent) fatal(sent.error().message);
    }
    void frame(Agent& a, const wire::Frame& f) {
        if (f.type == wire::frame::error_text) {
            last_refusal_ = value(wire::unpack<wire::ErrorText>(f.body)).text;
            return;  // it closes
        }
        if (!a.welcomed) {
            value(wire::unpack<wire::Welcome>(f.body));
            a.welcomed = true;
            ++welcomed_;
            a.pause.reset();
            send(a, a.offer);
            for (const JobId& id : a.jobs) send(a, jobs_.at(id).report);
            return;
        }
        if (f.type == wire::frame::certified || f.type == wire::frame::revoked ||
            f.type == wire::frame::ticket_keys)
            return;  // a real agent's matter
        const FromMarket message = value(wire::unpack_from_market(f.type, f.body));
        if (const auto* order = std::get_if<Order>(&message)) take(a, *order);
        if (const auto* note = std::get_if<JobNote>(&message); note && note->settled)
            settled_ += forget(a, note->id);
    }

    // ---- jobs

    void submit_one(size_t home, int64_t bid, bool timed) {
        Agent& a = *agents_[home % agents_.size()];
        Job job;
        JobReport& r = job.report;
        r.id = {a.node, a.next_seq++};
        r.terms.max_price = Money{bid * 1'000'000 + rng_.between(0, 999'999)};
        r.terms.memory_mb = 100;
        r.uid = 1'000 + static_cast<uint32_t>(home % 40);
        r.user = "user" + std::to_string(r.uid);
        r.name = "simulate";
        r.command =
            "./simulate --input data/run-" + std::to_string(r.id.seq) + ".dat --output out/";
        r.submitted = Nanos::from_s(1'700'000'000) + Nanos{static_cast<int64_t>(++submitted_)};
        job.home = a.number;
        a.jobs.push_back(r.id);
        waiting_.push_back(r.id);
        const JobReport copy = r;
        jobs_.emplace(r.id, std::move(job));
        if (timed) await(copy.id, true);
        send(a, copy);
    }
    void finish_one(const JobId& id) {
        Job& job = jobs_.at(id);
        leave_running(job);
        job.report.phase = JobPhase::finished;
        awaited_places_[job.report.where] = Loop::now();
        send(*agents_[job.home], job.report);
    }
    void rebid() {
        // A job that waits outbids those that run, or one that runs falls below those that wait.
        const bool up = rng_.chance(0.5) || running_.empty();
        if (up && waiting_.empty()) return;
        const size_t pick = rng_.below(up ? waiting_.size() : running_.size());
        const JobId id = up ? waiting_[pick] : running_[pick];
        const auto it = jobs_.find(id);
        if (up) {
            waiting_[pick] = waiting_.back();
            waiting_.pop_back();
        }
        if (it == jobs_.end() || (up && it->second.report.phase != JobPhase::waiting)) return;
        JobReport& r = it->second.report;
        r.terms.max_price =
            Money{(up ? rng_.between(2'500, 3'000) : rng_.between(2, 50)) * 1'000'000};
        await(id, up);
        send(*agents_[it->second.home], r);
    }
    void take(Agent& a, const Order& order) {
        ++orders_;
        heard(order);
        const auto it = jobs_.find(order.id);
        if (it == jobs_.end()) return;
        Job& job = it->second;
        JobReport& r = job.report;
        r.order_seq = order.seq;
        leave_running(job);
        if (order.kind == Order::Kind::run) {
            r.phase = r.phase == JobPhase::waiting  ? JobPhase::starting
                      : r.phase == JobPhase::frozen ? JobPhase::thawing
                                                    : JobPhase::moving;
            if (r.phase == JobPhase::starting) r.where = order.node;
            r.to = order.node;
            r.epoch = r.epoch.next();
        } else {
            r.phase = JobPhase::freezing;
        }
        send(a, r);
        under_way_.push_back({Loop::now() + options_.carry_out, order});
    }
    void carry_out(const Order& order) {
        const auto it = jobs_.find(order.id);
        if (it == jobs_.end() || it->second.report.order_seq != order.seq) return;
        Job& job = it->second;
        JobReport& r = job.report;
        if (order.kind == Order::Kind::run) {
            r.phase = JobPhase::running;
            r.where = order.node;
            r.to.clear();
            if (r.places.empty() || r.places.back() != order.node) r.places.push_back(order.node);
            if (r.places.size() > 20) r.places.erase(r.places.begin());
            job.place_in_running = running_.size();
            job.run_since = Loop::now();
            running_.push_back(order.id);
        } else if (order.kind == Order::Kind::suspend) {
            r.phase = JobPhase::frozen;
            ++r.stats.freezes;
        } else {
            r.phase = JobPhase::finished;
            r.cancelled = true;
        }
        send(*agents_[job.home], r);
    }
    void leave_running(Job& job) {
        const size_t at = std::exchange(job.place_in_running, SIZE_MAX);
        if (at == SIZE_MAX) return;
        job.report.stats.run_time += Loop::now() - job.run_since;
        job.report.stats.cpu_time = job.report.stats.run_time;
        running_[at] = running_.back();
        jobs_.at(running_[at]).place_in_running = at;
        running_.pop_back();
    }
    bool forget(Agent& a, const JobId& id) {
        std::erase(a.jobs, id);
        return jobs_.erase(id) > 0;
    }

    // ---- what is measured

    void await(const JobId& id, bool displaces) {
        awaited_[id.text()] = Loop::now();
        if (displaces) displacing_.push_back(id.text());
    }
    // Measures the time until an order. It may be for the job itself, for a job that fills the
    // place that the job left, or, after a bid that displaces a job, the freeze of that job. Bids
    // that displace are answered in the order in which they came.
    void heard(const Order& order) {
        const auto hit = [this](auto& map, const std::string& key) {
            const auto it = map.find(key);
            if (it == map.end()) return false;
            latencies_.push_back((Loop::now() - it->second).ns);
            map.erase(it);
            return true;
        };
        const bool own = hit(awaited_, order.id.text());
        if (order.kind == Order::Kind::run) hit(awaited_places_, order.node);
        if (order.kind != Order::Kind::suspend || own) return;
        while (!displacing_.empty() && !hit(awaited_, displacing_.front())) displacing_.pop_front();
        if (!displacing_.empty()) displacing_.pop_front();
    }

    // Sends a hundredth of a second's reports and events, and ends the operations that have lasted
    // long enough.
    void tick() {
        constexpr int ticks_per_s = 100;
        const size_t n = agents_.size();
        for (size_t i = n * (tick_ % ticks_per_s) / ticks_per_s;
             reports_ && i < n * (tick_ % ticks_per_s + 1) / ticks_per_s; ++i) {
            Agent& a = *agents_[i];
            a.offer.load_permille = static_cast<int32_t>(rng_.below(1'000));
            a.offer.free_mb = a.offer.memory_mb - static_cast<int64_t>(rng_.below(100));
            send(a, a.offer);
        }
        events_due_ += options_.events_per_s;
        for (; events_due_ >= ticks_per_s; events_due_ -= ticks_per_s) {
            if (jobs_.size() > options_.jobs && !running_.empty())
                finish_one(running_[rng_.below(running_.size())]);
            const bool wins = rng_.chance(0.5);
            submit_one(rng_.below(n), wins ? rng_.between(2'500, 3'000) : rng_.between(100, 300),
                       wins);
            rebid();
        }
        const Nanos now = Loop::now();
        while (!under_way_.empty() && under_way_.front().first <= now) {
            carry_out(under_way_.front().second);
            under_way_.pop_front();
        }
        for (auto* map : {&awaited_, &awaited_places_})  // those that changed nothing
            std::erase_if(
                *map, [now](const auto& entry) { return entry.second + Nanos::from_s(2) < now; });
        if (churning_) {
            finish(SIZE_MAX);
            for (size_t i = jobs_.size(); i < options_.jobs; ++i)
                submit_one(churned_++, rng_.between(100, 1'000), false);
        }
        ++tick_;
        due_ = std::max(due_ + Nanos{1'000'000'000 / ticks_per_s}, now);
        ticker_ = loop_.at(due_, [this] { tick(); });
    }

    template <class T>
    static T value(Result<T> result) {
        if (!result) fatal(result.error().message);
        return std::move(*result);
    }
    [[noreturn]] static void fatal(const std::string& why) {
        std::fprintf(stderr, "fleet: %s\n", why.c_str());
        std::exit(1);
    }

    Loop& loop_;
    FleetOptions options_;
    Rng rng_;
    std::vector<std::unique_ptr<Agent>> agents_;
    std::map<JobId, Job> jobs_;
    std::vector<JobId> waiting_, running_;
    std::deque<std::pair<Nanos, Order>> under_way_;
    std::map<std::string, Nanos> awaited_, awaited_places_;  // since when
    std::deque<std::string> displacing_;
    std::vector<int64_t> latencies_;
    std::string last_refusal_;
    size_t welcomed_ = 0;
    uint64_t sent_ = 0, orders_ = 0, settled_ = 0, refused_ = 0, attempts_ = 0, submitted_ = 0;
    uint64_t tick_ = 0;
    int events_due_ = 0;
    bool reports_ = true, churning_ = false;
    size_t churned_ = 0;
    Nanos due_;
    Timer ticker_;
};

}  // namespace souk::bench
