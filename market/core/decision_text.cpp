// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/decision_text.hpp"

#include <algorithm>
#include <map>

#include "market/core/market.hpp"

namespace souk::market {
namespace {

const JobDemand new_job{};
const ProviderSpec new_node{
    .reserve = {}, .speed = 0, .cpus = 0, .memory_mb = 0, .accepting = true};

char letter(JobState state) {
    return state == JobState::running ? 'r' : state == JobState::frozen ? 'f' : 'w';
}

char letter(Pin pin) { return pin == Pin::stay ? 's' : pin == Pin::frozen ? 'f' : '-'; }

}  // namespace

void DecisionText::begin(std::string why) {
    why_ = std::move(why);
    muted_ = false;
    open_ = false;
    text_.clear();
    named_.clear();
}

void DecisionText::mute() {
    begin("gap");
    muted_ = true;
}

std::string DecisionText::take() {
    open_ = false;
    return std::exchange(text_, {});
}

uint32_t DecisionText::index_of(JobKey key, bool add) {
    uint32_t j = jobs_.find(key.n);
    if (j != KeyMap::none || !add) return j;
    if (free_.empty()) {
        free_.push_back(static_cast<uint32_t>(known_.size()));
        known_.emplace_back();
    }
    j = free_.back();
    free_.pop_back();
    known_[j] = {};
    known_[j].key = key.n;
    jobs_.insert(key.n, j);
    return j;
}

uint32_t DecisionText::index_of(ProviderKey key) const { return nodes_.find(key.n); }

void DecisionText::mark(uint32_t j) {
    if (!std::exchange(known_[j].dirty, true)) dirty_.push_back(j);
}

// -------------------------------------------------------------------------------------------------
// lines

void DecisionText::open_block(Nanos now) {
    if (std::exchange(open_, true)) return;
    text_ += "T " + std::to_string(now.ns) + "\n";
}

void DecisionText::line(char kind, uint64_t index) {
    text_ += kind;
    text_ += ' ';
    text_ += std::to_string(index);
}

void DecisionText::attribute(const char* name, int64_t value) {
    text_ += name;
    text_ += std::to_string(value);
}

void DecisionText::write_options(const Market& market) {
    const Solver& solver = market.solver();
    std::string options = "o solver=" + solver.options().algorithm +
                          " pricing=" + solver.options().pricing +
                          " users=" + (solver.bidders_are_users() ? "1" : "0") +
                          " program=" + (market.external() ? "1" : "0");
    for (const SolverOption& option : solver_option_table())
        options +=
            " " + std::string(option.name) + "=" + std::to_string(option.get(solver.options()));
    if (solver.gangs() > 0) options += " gangs=1";  // whose places and prices no reader confirms
    if (solver.named_jobs() > 0) options += " named=1";  // the same
    options += "\n";
    if (options != options_) text_ += options_ = options;
}

void DecisionText::write_node(uint32_t n) {
    KnownNode& node = known_nodes_[n];
    node.dirty = false;
    const ProviderSpec& now = node.now;
    line('n', n);
    if (!std::exchange(node.named, true)) {
        text_ += " id=" + node.name;
        attribute(" k=", static_cast<int64_t>(node.key.n));
        node.said = new_node;
    }
    if (now.reserve != node.said.reserve) attribute(" r=", now.reserve.micro);
    if (now.speed != node.said.speed) attribute(" s=", now.speed);
    if (now.cpus != node.said.cpus) attribute(" c=", now.cpus);
    if (now.memory_mb != node.said.memory_mb) attribute(" m=", now.memory_mb);
    if (now.accepting != node.said.accepting) attribute(" a=", now.accepting);
    text_ += '\n';
    node.said = now;
}

// Writes what the solver was told, as far as the text does not say so.
void DecisionText::write_job(const Job& job, uint32_t j) {
    Known& known = known_[j];
    const JobDemand& now = known.now;
    line('j', j);
    const size_t begun = text_.size();
    if (!std::exchange(known.named, true)) {
        const JobReport& r = job.record.report;
        named_.push_back(
            {pseudonyms_.job(r.id), pseudonyms_.user(r.uid, since_), r.user, r.id, r.uid});
        text_ += " id=" + named_.back().job_name;
        attribute(" k=", static_cast<int64_t>(known.key));
        text_ += " u=" + named_.back().user_name;
        known.said = new_job;
        known.slot = {};
        known.price = known.paid = Money{-1};
        known.held = false;
    }
    if (now.value != known.said.value) attribute(" v=", now.value.micro);
    if (now.cpus != known.said.cpus) attribute(" c=", now.cpus);
    if (now.memory_mb != known.said.memory_mb) attribute(" m=", now.memory_mb);
    if (now.arrival != known.said.arrival) attribute(" t=", now.arrival.ns);
    if (now.weight != known.said.weight) attribute(" w=", now.weight);
    if (now.state != known.said.state || now.place != known.said.place) {
        text_ += " s=";
        text_ += letter(now.state);
        const uint32_t at = index_of(now.place);
        if (at != KeyMap::none) text_ += std::to_string(at);
        known.slot = now.state == JobState::running ? now.place : ProviderKey{};
    }
    if (now.pin != known.said.pin) text_ += std::string(" p=") + letter(now.pin);
    if (now.move_bytes != known.said.move_bytes) attribute(" y=", now.move_bytes);
    if (now.dirty_bytes_per_s != known.said.dirty_bytes_per_s)
        attribute(" d=", now.dirty_bytes_per_s);
    if (now.barred != known.said.barred) {
        text_ += " b=";
        for (const ProviderKey key : now.barred)
            if (const uint32_t n = index_of(key); n != KeyMap::none)
                text_ += (text_.back() == '=' ? "" : ",") + std::to_string(n);
    }
    if (now.files != known.said.files) {
        text_ += " f=";
        if (now.files.any()) {
            text_ += job.record.report.id.home;
            attribute(",", now.files.bytes_per_s);
            attribute(",", now.files.requests_per_s);
            attribute(",", now.files.round_trip.ns);
        }
    }
    known.said = now;
    if (text_.size() == begun)
        text_.resize(text_.rfind('\n') + 1);
    else
        text_ += '\n';
}

// Writes where the decision has the job. From then on the text has said what the solver believes.
void DecisionText::write_place(const Solver& solver, uint32_t j) {
    Known& known = known_[j];
    const Solver::Standing standing = solver.standing({known.key});
    if (standing.held != known.held) {
        line('h', j);
        text_ += standing.held ? " 1\n" : " 0\n";
        known.held = standing.held;
        if (standing.held) held_.push_back(j);
    }
    if (standing.slot != known.slot) {
        line('a', j);
        const uint32_t at = index_of(standing.slot);
        text_ += (at == KeyMap::none ? " -" : " " + std::to_string(at)) + "\n";
        known.slot = standing.slot;
    }
    if (known.slot.n != 0) {
        known.said.state = JobState::running;
        known.said.place = known.slot;
    } else {
        known.price = Money{-1};
        if (known.said.state == JobState::running) known.said.state = JobState::frozen;
    }
}

void DecisionText::write_account(const JobRecord& r) {
    attribute(" ", r.billed.ns);
    attribute(" ", r.account.amount.micro);
    attribute(" ", r.account.rest);
}

void DecisionText::write_in_force(const Job& job, uint32_t j) {
    const JobRecord& r = job.record;
    if (r.payee.empty()) return;
    known_[j].paid = r.price;
    known_[j].payee = r.payee;
    line('f', j);
    text_ += " " + r.payee;
    attribute(" ", r.price.micro);
    write_account(r);
    attribute(" ", r.report.terms.cpus);
    attribute(" ", r.tab.amount.micro);
    attribute(" ", r.tab.run.ns);
    text_ += booked_price(job) ? " sold\n" : "\n";
}

// -------------------------------------------------------------------------------------------------
// what was told and decided

void DecisionText::told(const Node& node, const ProviderSpec& spec) {
    uint32_t n = nodes_.find(node.key.n);
    if (n == KeyMap::none) {
        n = static_cast<uint32_t>(known_nodes_.size());
        known_nodes_.push_back({node.key, node.id(), false, false, {}, {}});
        nodes_.insert(node.key.n, n);
    }
    known_nodes_[n].now = spec;
    if (!std::exchange(known_nodes_[n].dirty, true)) dirty_nodes_.push_back(n);
}

void DecisionText::told(const Job& job, const JobDemand& spec) {
    const uint32_t j = index_of(job.key, true);
    known_[j].now = spec;
    known_[j].told = true;
    mark(j);
}

void DecisionText::gone(const Job& job) {
    const uint32_t j = index_of(job.key, false);
    if (j == KeyMap::none || std::exchange(known_[j].gone, true)) return;
    gone_.push_back(j);
}

void DecisionText::changed(JobKey job) {
    const uint32_t j = index_of(job, false);
    if (j != KeyMap::none) mark(j);
}

// All of it anew: nothing that was said before is known to the reader.
void DecisionText::snapshot(const Market& market, Nanos now) {
    since_ = now;
    options_.clear();
    turn_.clear();
    dirty_.clear();
    held_.clear();
    dirty_nodes_.clear();
    for (Known& known : known_) known.dirty = known.named = known.held = false;
    for (KnownNode& node : known_nodes_) node.dirty = node.named = false;
    for (const auto& [name, node] : market.nodes())
        if (const auto spec = market.solver().provider(node.key)) told(node, *spec);
    for (const auto& [id, job] : market.jobs()) {
        if (!job.in_solver) continue;
        if (const auto spec = market.solver().job(job.key)) told(job, *spec);
    }
}

// A line of each that is gone, where the text has named it.
void DecisionText::forget_gone(bool silently) {
    for (const uint32_t j : std::exchange(gone_, {})) {
        if (known_[j].named && !silently) {
            line('g', j);
            text_ += '\n';
        }
        jobs_.erase(known_[j].key);
        known_[j] = {};
        free_.push_back(j);
    }
    std::erase_if(dirty_, [this](uint32_t j) { return known_[j].key == 0; });
    std::erase_if(held_, [this](uint32_t j) { return known_[j].key == 0; });
}

void DecisionText::decided(const Market& market, Nanos now) {
    if (muted_) {
        number_ += !gone_.empty() || !dirty_.empty() || !dirty_nodes_.empty();
        forget_gone(true);
        for (const uint32_t j : std::exchange(dirty_, {})) known_[j].dirty = false;
        for (const uint32_t n : std::exchange(dirty_nodes_, {})) known_nodes_[n].dirty = false;
        return;
    }
    const std::string why = std::exchange(why_, {});
    if (!why.empty()) {
        forget_gone(true);
        snapshot(market, now);
    }
    for (const uint32_t j : std::exchange(held_, {})) {
        if (market.solver().standing({known_[j].key}).held)
            held_.push_back(j);
        else if (known_[j].key != 0)
            mark(j);
    }
    ++number_;
    if (!write_decision(market, now, why)) --number_;
}

std::string DecisionText::restate(const Market& market, Nanos now) {
    forget_gone(true);
    std::string before = std::exchange(text_, {});
    const bool was_open = open_;
    std::map<uint32_t, Money> prices;
    for (uint32_t j = 0; j < known_.size(); ++j)
        if (known_[j].key != 0 && known_[j].price.micro >= 0) prices[j] = known_[j].price;
    snapshot(market, now);
    write_decision(market, now, "rotation");
    for (const auto& [j, price] : prices) {
        if (known_[j].slot.n == 0) continue;
        line('k', j);
        attribute(" ", price.micro);
        text_ += '\n';
        known_[j].price = price;
    }
    open_ = was_open;
    std::swap(before, text_);
    return before;
}

// False, and nothing is written: nothing is other than it was.
bool DecisionText::write_decision(const Market& market, Nanos now, const std::string& why) {
    const Solver& solver = market.solver();
    const size_t before = text_.size();
    text_ += "D " + std::to_string(number_) + " " + std::to_string(now.ns) +
             (why.empty() ? "" : " " + why) + "\n";
    const size_t begun = text_.size();
    write_options(market);
    forget_gone(false);
    std::sort(dirty_.begin(), dirty_.end());
    for (const uint32_t n : std::exchange(dirty_nodes_, {})) write_node(n);
    std::vector<std::pair<uint32_t, const Job*>> fresh;
    for (const uint32_t j : dirty_) {
        Known& known = known_[j];
        known.dirty = false;
        if (!std::exchange(known.told, false)) continue;
        const Job* const job = market.job_of({known.key});
        if (!job) continue;
        if (!known.named) fresh.emplace_back(j, job);
        write_job(*job, j);
    }
    for (const uint32_t j : std::exchange(dirty_, {}))
        if (known_[j].named) write_place(solver, j);
    if (solver.options().algorithm == "proportional_share") {
        std::string turn = "t";
        for (const JobKey key : solver.competing())
            if (const uint32_t j = index_of(key, false); j != KeyMap::none)
                turn += " " + std::to_string(j);
        turn += '\n';
        if (turn != turn_) text_ += turn_ = turn;
    }
    if (why.empty() && text_.size() == begun) {
        text_.resize(before);
        return false;
    }
    open_ = true;
    for (const auto& [j, job] : fresh) write_in_force(*job, j);
    return true;
}

// -------------------------------------------------------------------------------------------------
// prices

void DecisionText::write_price(uint32_t j, Money price, std::string& same) {
    const bool again = std::exchange(known_[j].priced, number_) == number_;
    if (known_[j].price == price) {
        if (!again) same += " " + std::to_string(j);
        return;
    }
    line('p', j);
    attribute(" ", price.micro);
    text_ += '\n';
    known_[j].price = price;
}

void DecisionText::reckoned(const Solver::PriceStart& round, Nanos now) {
    if (!why_.empty() || std::exchange(round_, number_) == number_) return;
    open_block(now);
    text_ += "P\n";
    // In a large market each change leaves nearly all of them for later.
    const bool most = round.rest.size() > round.payments.size();
    if (most) {
        text_ += "q *\n";
    } else if (!round.rest.empty()) {
        text_ += 'q';
        for (const JobKey key : round.rest)
            if (const uint32_t j = index_of(key, false); j != KeyMap::none)
                text_ += " " + std::to_string(j);
        text_ += '\n';
    }
    std::string same;
    for (const Payment& payment : round.payments)
        if (const uint32_t j = index_of(payment.job, false); j != KeyMap::none && known_[j].named)
            write_price(j, payment.price, same);
    if (most && !same.empty()) text_ += "=" + same + "\n";
}

void DecisionText::reckoned(std::span<const Payment> some, Nanos now) {
    if (!why_.empty()) return;
    std::string same;
    for (const Payment& payment : some) {
        const uint32_t j = index_of(payment.job, false);
        if (j == KeyMap::none || !known_[j].named) continue;
        if (known_[j].price != payment.price) open_block(now);
        write_price(j, payment.price, same);
    }
    if (same.empty()) return;
    open_block(now);
    text_ += "=" + same + "\n";
}

void DecisionText::ordered(const Job& job, Money price) {
    const uint32_t j = index_of(job.key, false);
    if (!why_.empty() || j == KeyMap::none || !known_[j].named) return;
    line('w', j);
    attribute(" ", price.micro);
    text_ += '\n';
}

void DecisionText::in_force(const Job& job, Nanos now) {
    const uint32_t j = index_of(job.key, false);
    if (!why_.empty() || j == KeyMap::none || !known_[j].named) return;
    if (known_[j].paid == job.record.price && known_[j].payee == job.record.payee) return;
    open_block(now);
    write_in_force(job, j);
}

void DecisionText::posted(const Job& job, const Receipt& receipt, Nanos now) {
    const uint32_t j = index_of(job.key, false);
    if (muted_) return;
    open_block(now);
    if (!why_.empty() || j == KeyMap::none || !known_[j].named) {
        line('u', receipt.seq);  // nothing is known of it yet
        text_ += '\n';
        return;
    }
    line('c', j);
    attribute(" ", static_cast<int64_t>(receipt.seq));
    write_account(job.record);
    text_ += '\n';
}

void DecisionText::cut(const Job& job, Nanos now) {
    const uint32_t j = index_of(job.key, false);
    if (!why_.empty() || j == KeyMap::none || !known_[j].named) return;
    open_block(now);
    line('l', j);
    write_account(job.record);
    text_ += '\n';
}

// Whoever reads the log cannot tell what a place has measured: the account is what it is now, and
// the receipt one of which nothing is known.
void DecisionText::taken_back(const Job& job, const Receipt& receipt, Nanos now) {
    cut(job, now);
    open_block(now);
    line('u', receipt.seq);
    text_ += '\n';
}

}  // namespace souk::market
