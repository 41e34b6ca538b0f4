// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/souk-web/feed.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "kernel/sys/host/clock.hpp"
#include "tools/common/ask.hpp"
#include "tools/common/paths.hpp"

namespace souk::tools::web {
namespace {

constexpr Nanos kept_for = Nanos::from_s(1);
constexpr size_t kept_max = 128;
constexpr int64_t share = 100;  // of the time, what ticks may cost
constexpr Nanos pause_max = Nanos::from_s(30);
// So long a page waits for one answer, and an order for its own. A market that lets a page wait so
// long is asked again after a while, and until then every page says so at once.
constexpr Nanos page_limit = Nanos::from_s(4), order_limit = Nanos::from_s(30),
                silence = Nanos::from_s(5);

std::chrono::nanoseconds chrono(Nanos span) { return std::chrono::nanoseconds(span.ns); }

// The market asks a job's home for its story, and waits for that itself.
bool asks_a_node(const std::string& verb, const std::vector<std::string>& args) {
    return verb == "story" || (verb == "web" && args.size() > 1 && args[1] == "story");
}

Result<Json> parsed(const std::string& text) {
    Json json = parse_json(text);
    if (json.is_discarded()) return fail("the market's answer is not JSON");
    return json;
}

}  // namespace

Feed::Feed(const Options& options)
    : options_(options),
      line_(options.remote ? std::make_unique<Line>(*options.remote) : nullptr),
      thread_([this] { run(); }) {}

Feed::~Feed() {
    stop();
    thread_.join();
}

Result<Feed::Part> Feed::part(const std::string& verb, const std::vector<std::string>& args,
                              const std::string& after) {
    std::string key = verb + '\n' + after;
    for (const std::string& arg : args) key += '\n' + arg;
    {
        const std::lock_guard lock(mutex_);
        const auto kept = kept_.find(key);
        if (kept != kept_.end() && monotonic_now() - kept->second.at < kept_for)
            return kept->second.part;
        if (silent_ && monotonic_now() < silent_until_) return tl::unexpected(*silent_);
    }
    auto asked = once(verb, args, after, page_limit);
    const std::lock_guard lock(mutex_);
    const Nanos now = monotonic_now();
    silent_.reset();
    if (!asked && asked.error().code == ETIMEDOUT && !asks_a_node(verb, args)) {
        silent_ = Error{ETIMEDOUT, "it has not answered within " +
                                       std::to_string(page_limit.ns / 1'000'000'000) +
                                       " s: marketd is stopped or overloaded, or the network to it "
                                       "is cut"};
        silent_until_ = now + silence;
        return tl::unexpected(*silent_);
    }
    std::erase_if(kept_, [now](const auto& each) { return now - each.second.at >= kept_for; });
    if (kept_.size() < kept_max) kept_.insert_or_assign(key, Kept{now, asked});
    return asked;
}

Result<Feed::Part> Feed::once(const std::string& verb, const std::vector<std::string>& args,
                              const std::string& after, Nanos limit) const {
    const auto find = [this] {
        return wire::find_market(options_.where.socket, options_.where.node);
    };
    TRY_ASSIGN(const ListPart answer, line_ ? line_->ask(verb, args, after, limit)
                                            : ask_part(find, verb, args, after, limit));
    if (answer.json.empty()) return Part{Json(), answer.next};
    TRY_ASSIGN(Json rows, parsed(answer.json));
    return Part{std::move(rows), answer.next};
}

Result<Json> Feed::tell(const std::string& verb, const std::vector<std::string>& args) {
    auto done = once(verb, args, "", order_limit);
    const std::lock_guard lock(mutex_);
    kept_.clear();
    if (!done) return tl::unexpected(done.error());
    return std::move(done->rows);
}

Result<Json> Feed::ask(const std::string& verb, const std::vector<std::string>& args) {
    constexpr size_t parts_max = 64;
    Json all;
    std::string after;
    for (size_t i = 0; i < parts_max; ++i) {
        TRY_ASSIGN(Part next, part(verb, args, after));
        if (all.is_array() && next.rows.is_array())
            all.insert(all.end(), next.rows.begin(), next.rows.end());
        else if (!next.rows.is_null())
            all = std::move(next.rows);
        if (next.next.empty()) return all;
        after = std::move(next.next);
    }
    return fail("the market's answer to " + verb + " is too long for a page");
}

std::optional<Feed::Tick> Feed::wait(uint64_t seen, Nanos limit) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, chrono(limit), [&] { return stop_ || tick_.number > seen; });
    if (stop_ || tick_.number <= seen) return std::nullopt;
    return tick_;
}

bool Feed::join(size_t watchers_max) {
    const std::lock_guard lock(mutex_);
    if (watchers_ >= watchers_max || stop_) return false;
    ++watchers_;
    changed_.notify_all();
    return true;
}

void Feed::leave() {
    const std::lock_guard lock(mutex_);
    --watchers_;
}

void Feed::stop() {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    changed_.notify_all();
}

bool Feed::stopped() const {
    const std::lock_guard lock(mutex_);
    return stop_;
}

// A market that does not answer is asked less and less often.
void Feed::run() {
    Nanos pause = options_.every;
    std::unique_lock lock(mutex_);
    for (;;) {
        changed_.wait(lock, [this] { return stop_ || watchers_ > 0; });
        if (stop_) return;
        lock.unlock();
        const Nanos before = monotonic_now();
        const auto status = part("status", {}, "");
        const Nanos cost = monotonic_now() - before;
        lock.lock();
        ++tick_.number;
        tick_.trouble = status ? "" : status.error().message;
        changed_.notify_all();
        pause = status ? std::max(options_.every, Nanos{cost.ns * share})
                       : std::min(Nanos{std::max(pause, options_.every).ns * 2}, pause_max);
        changed_.wait_for(lock, chrono(pause), [this] { return stop_; });
    }
}

}  // namespace souk::tools::web
