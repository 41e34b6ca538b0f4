// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/libsouk/souk.h"

#include <sys/random.h>
#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "agentd/wire/codec.hpp"
#include "kernel/sys/host/clock.hpp"
#include "tools/common/ask.hpp"
#include "tools/common/link.hpp"
#include "tools/common/paths.hpp"
#include "tools/common/remote.hpp"
#include "tools/libsouk/attach.hpp"
#include "tools/srun/spec.hpp"

struct souk_handle {
    souk::tools::Where where;
    std::string error;
};

// Everything is named in the namespace, but what C sees.
namespace souk::tools {
namespace {

constexpr Nanos answer_max = Nanos::from_s(30), patience = Nanos::from_s(5);

using Handle = souk_handle;

// Takes the terms that the program knows of. An older program has a shorter struct; the other terms
// are not said.
souk_terms known(const souk_terms* given) {
    souk_terms terms{};
    if (given) std::memcpy(&terms, given, std::min(given->size, sizeof terms));
    return terms;
}

struct Terms {
    JobTerms terms;
    uint32_t given = 0;
};

Result<Terms> parsed(const souk_terms& t) {
    using Field = wire::Change;
    Terms all;
    if (t.price) {
        TRY_ASSIGN(all.terms.max_price, parse_money(t.price));
        if (all.terms.max_price <= Money{}) return fail("price: it must be above 0");
        all.given |= Field::max_price;
    }
    if (t.budget) {
        TRY_ASSIGN(all.terms.budget, parse_money(t.budget));
        all.given |= Field::budget;
    }
    if (t.memory_mb < 0 || t.cpus < 0 || !(t.finish_s >= 0 && t.finish_s < 1e9))
        return fail("memory_mb, cpus and finish_s are 0 or more");
    if (t.memory_mb > 0) {
        all.terms.memory_mb = t.memory_mb;
        all.given |= Field::memory_mb;
    }
    if (t.cpus > 0) {
        all.terms.cpus = t.cpus;
        all.given |= Field::cpus;
    }
    if (t.finish_s > 0) {
        all.terms.finish = Nanos{static_cast<int64_t>(t.finish_s * 1e9)};
        all.given |= Field::finish;
    }
    if (!(t.runtime_s >= 0 && t.runtime_s < 1e9)) return fail("runtime_s is 0 or more");
    if (t.runtime_s > 0) {
        all.terms.runtime = Nanos{static_cast<int64_t>(t.runtime_s * 1e9)};
        all.given |= Field::runtime;
    }
    if (t.promise) {
        if (t.finish_s == 0) return fail("promise needs finish_s");
        all.terms.booking.edit().promise = true;
        all.given |= Field::booking;
    }
    return all;
}

std::vector<std::string> words(const char* const* texts) {
    std::vector<std::string> all;
    for (; texts && *texts; ++texts) all.emplace_back(*texts);
    return all;
}

Status copy_out(const std::string& text, char** out) {
    if (!out) return fail("there is no place for the answer");
    *out = static_cast<char*>(std::malloc(text.size() + 1));
    if (!*out) return fail("out of memory");
    std::memcpy(*out, text.c_str(), text.size() + 1);
    return {};
}

Result<std::string> answer(const Handle& s, const std::string& verb,
                           const std::vector<std::string>& args) {
    const auto find = [&s] { return wire::find_market(s.where.socket, s.where.node); };
    TRY_ASSIGN(const auto remote, remote_of(s.where, [&] { return find().has_value(); }));
    auto parts =
        remote ? ask_market_at(*remote, verb, args, patience) : ask(find, verb, args, patience);
    if (!parts) return tl::unexpected(parts.error());
    return joined(std::move(*parts));
}

// Jobs belong to users of a node; a certificate is for the market.
Result<std::string> agentd_socket(const Handle& s) {
    if (!(s.where.market + s.where.cert).empty())
        return fail(
            "a certificate is for questions and orders; jobs are submitted, quoted, changed and "
            "attached to on a node of the market");
    return wire::find_agentd(s.where.socket, s.where.node);
}

Result<Link> agentd(const Handle& s) {
    TRY_ASSIGN(const std::string socket, agentd_socket(s));
    return Link::open(socket);
}

Status submit(const Handle& s, const souk_terms& terms, const char* const* argv, char* id,
              size_t id_size) {
    if (!argv || !*argv) return fail("there is no program to run");
    TRY_ASSIGN(const Terms t, parsed(terms));
    if (!(t.given & wire::Change::max_price)) return fail("a new job must say its price");
    auto program = words(argv);
    std::vector<char*> pointers;
    pointers.reserve(program.size());
    for (std::string& word : program) pointers.push_back(word.data());
    wire::Submit request;
    TRY_ASSIGN(request.spec.launch, capture_launch(pointers));
    request.terms = t.terms;
    if (terms.name) request.name = terms.name;
    if (getrandom(&request.token, sizeof request.token, 0) != sizeof request.token)
        request.token = 0;
    TRY_ASSIGN(Link link, agentd(s));
    link.queue(request);
    TRY_ASSIGN(const auto submitted, link.expect<wire::Submitted>(answer_max));
    const std::string text = submitted.id.text();
    if (!id || id_size <= text.size())
        return fail("job " + text + " is submitted, and its id does not fit into " +
                    std::to_string(id_size) + " bytes");
    std::memcpy(id, text.c_str(), text.size() + 1);
    return {};
}

Status change(const Handle& s, const char* id, const souk_terms& terms) {
    TRY_ASSIGN(const JobId job, parse_job_id(id ? id : ""));
    TRY_ASSIGN(const Terms t, parsed(terms));
    if (t.given == 0) return fail("no term of the job is named");
    TRY_ASSIGN(Link link, agentd(s));
    link.queue(wire::Change{job, t.given, t.terms});
    TRY_ASSIGN(const auto ok, link.expect<wire::Ok>(answer_max));
    (void)ok;
    return {};
}

Result<std::string> quoted(const Handle& s, const souk_terms& terms, double runtime_s) {
    TRY_ASSIGN(const Terms t, parsed(terms));
    if (!(t.given & wire::Change::max_price)) return fail("a quote needs a price");
    if (!(runtime_s >= 0 && runtime_s < 1e9)) return fail("runtime_s is 0 or more");
    const std::vector<std::string> args = {
        "price=" + format_money(t.terms.max_price),
        "budget=" + format_money(t.terms.budget),
        "memory=" + std::to_string(t.terms.memory_mb),
        "cpus=" + std::to_string(t.terms.cpus),
        "finish_ns=" + std::to_string(t.terms.finish.ns),
        "runtime_ns=" + std::to_string(static_cast<int64_t>(runtime_s * 1e9))};
    const auto find = [&s] { return agentd_socket(s); };
    TRY_ASSIGN(Answer parts, ask(find, "quote", args, patience));
    return joined(std::move(parts));
}

// The value of `status`, which the market writes near the beginning.
std::string status_of(const std::string& job) {
    constexpr std::string_view key = "\"status\":\"";
    const size_t at = job.find(key), from = at + key.size();
    return at == std::string::npos ? "" : job.substr(from, job.find('"', from) - from);
}

Result<std::string> watched(const Handle& s, const char* id, const char* status, int timeout_ms) {
    const Nanos until = monotonic_now() + Nanos::from_ms(timeout_ms);
    Nanos pause = Nanos::from_ms(50);
    for (;;) {
        TRY_ASSIGN(std::string job, answer(s, "job", {id ? id : ""}));
        const std::string now = status_of(job);
        const Nanos left = until - monotonic_now();
        if (now == "finish" || (status && now != status) || left.ns <= 0) return job;
        const Nanos wait = std::min(pause, left);
        const timespec span{wait.ns / 1'000'000'000, wait.ns % 1'000'000'000};
        nanosleep(&span, nullptr);
        pause = std::min(Nanos{pause.ns * 2}, Nanos::from_s(1));
    }
}

Status attach(const Handle& s, const char* id, const AttachedStreams& streams, int* exit) {
    TRY_ASSIGN(const JobId job, parse_job_id(id ? id : ""));
    TRY_ASSIGN(const int status, attach_streams([&s] { return agentd(s); }, job, streams));
    if (exit) *exit = status;
    return {};
}

// The library's own code throws nothing; memory may run out.
int guarded(Handle* s, auto&& call) {
    if (!s) return -1;
    try {
        const Status done = call();
        if (!done) s->error = done.error().message;
        return done ? 0 : -1;
    } catch (const std::exception& e) {
        s->error.assign("out of memory");
        return -1;
    }
}

int give(Handle* s, char** json, auto&& call) {
    return guarded(s, [&]() -> Status {
        TRY_ASSIGN(const std::string text, call());
        return copy_out(text, json);
    });
}

}  // namespace
}  // namespace souk::tools

using namespace souk::tools;

#define SOUK_PUBLIC extern "C" __attribute__((visibility("default")))

SOUK_PUBLIC int souk_api_version(void) { return (SOUK_API_MAJOR << 16) + SOUK_API_MINOR; }

SOUK_PUBLIC souk_handle* souk_open(const char* socket, const char* node) {
    return new (std::nothrow) souk_handle{{socket ? socket : "", node ? node : "", "", ""}, ""};
}
SOUK_PUBLIC souk_handle* souk_open_at(const char* market, const char* cert) {
    return new (std::nothrow) souk_handle{{"", "", market ? market : "", cert ? cert : ""}, ""};
}
SOUK_PUBLIC void souk_close(souk_handle* s) { delete s; }
SOUK_PUBLIC const char* souk_error(const souk_handle* s) {
    return s ? s->error.c_str() : "there is no souk";
}
SOUK_PUBLIC void souk_free(char* text) { std::free(text); }

SOUK_PUBLIC int souk_submit(souk_handle* s, const souk_terms* terms, const char* const* argv,
                            char* id, size_t id_size) {
    return guarded(s, [&] { return submit(*s, known(terms), argv, id, id_size); });
}
SOUK_PUBLIC int souk_change(souk_handle* s, const char* id, const souk_terms* terms) {
    return guarded(s, [&] { return change(*s, id, known(terms)); });
}
SOUK_PUBLIC int souk_cancel(souk_handle* s, const char* id) {
    char* json = nullptr;
    const int done = give(s, &json, [&] { return answer(*s, "cancel", {id ? id : ""}); });
    std::free(json);
    return done;
}
SOUK_PUBLIC int souk_quote(souk_handle* s, const souk_terms* terms, double runtime_s, char** json) {
    return give(s, json, [&] { return quoted(*s, known(terms), runtime_s); });
}
SOUK_PUBLIC int souk_job(souk_handle* s, const char* id, char** json) {
    return give(s, json, [&] { return answer(*s, "job", {id ? id : ""}); });
}
SOUK_PUBLIC int souk_list(souk_handle* s, const char* const* filters, char** json) {
    return give(s, json, [&] { return answer(*s, "list-jobs", words(filters)); });
}
SOUK_PUBLIC int souk_watch(souk_handle* s, const char* id, const char* status, int timeout_ms,
                           char** json) {
    return give(s, json, [&] { return watched(*s, id, status, timeout_ms); });
}
SOUK_PUBLIC int souk_attach(souk_handle* s, const char* id, int in, int out, int err, int* exit) {
    return guarded(s, [&] { return attach(*s, id, {in, out, err}, exit); });
}
SOUK_PUBLIC int souk_ask(souk_handle* s, const char* verb, const char* const* args, char** json) {
    return give(s, json, [&] { return answer(*s, verb ? verb : "", words(args)); });
}
