// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/daemon/ledger_keeper.hpp"

#include <algorithm>
#include <utility>

#include "kernel/base/json.hpp"

namespace souk {

namespace {

constexpr Nanos breath = Nanos::from_ms(1);

wire::CtlReply refusal(const wire::CtlRequest& request, Cause why) {
    wire::CtlReply reply;
    reply.request = request.request;
    reply.error = std::move(why);
    return reply;
}

}  // namespace

void LedgerKeeper::verify(uint64_t connection, const wire::CtlRequest& request) {
    wire::CtlReply reply;
    reply.request = request.request;
    if (request.uid != 0) {
        reply.error = {CauseCode::not_allowed, "only root may verify the ledger"};
        return replies_.add(connection, std::move(reply));
    }
    walkers_.push_back({connection, std::move(reply)});
    if (walk_) return;
    walk_.emplace(records_.state().db());
    walked_to_ = walked_from_ = 0;
    walk_timer_ = loop_.after(Nanos{0}, [this] { walk_on(); });
}

void LedgerKeeper::walk_on() {
    const auto of_job = [this](const JobId& id) {
        return market_.find(id) || records_.finished().find(id).value_or(std::nullopt);
    };
    Result<bool> more = walk_->step(of_job);
    if (more && !*more) more = walk_finished();
    if (more && *more) {
        walk_timer_ = loop_.after(breath, [this] { walk_on(); });
        return;
    }
    // All that was charged is decided and committed. From here to the end nothing comes in between.
    steps_.step();
    while (more.value_or(false)) more = walk_->step(of_job);
    const Result<LedgerSummary> ended = more ? walk_ended() : tl::unexpected(more.error());
    for (Reply& r : std::exchange(walkers_, {})) {
        r.reply.ok = ended.has_value();
        if (ended)
            r.reply.json = ledger_json(*ended);
        else
            r.reply.error = ended.error();
        connections_.send(r.connection, r.reply);
    }
    walk_.reset();
}

// A job that finished before all receipts had been read has its last one among them, and does not
// change any more. These are read a piece at a time, the newest first. Jobs that finish meanwhile
// are left for the end.
Result<bool> LedgerKeeper::walk_finished() {
    constexpr size_t records_max = 256;
    if (walked_from_ == 0) walked_to_ = walked_from_ = records_.finished().newest() + 1;
    TRY_ASSIGN(const auto records, records_.finished().before(walked_to_, records_max));
    for (const market::JobRecord& r : records) {
        TRY(walk_->check().same_cost(r.report.id, r.account.amount, r.tab));
        walked_to_ = r.finish_seq;
    }
    return !records.empty();
}

Result<LedgerSummary> LedgerKeeper::walk_ended() const {
    if (records_.state().journal().holds())
        return fail("the records cannot be written now: ask again when they can");
    const market::LedgerCheck& check = walk_->check();
    const market::Ledger& ledger = market_.ledger();
    if (check.receipts() != ledger.last())
        return fail("there are " + std::to_string(check.receipts()) + " receipts, and there were " +
                    std::to_string(ledger.last()));
    TRY(check.same_balances(ledger.accounts()));
    TRY_ASSIGN(const auto late,
               records_.finished().before(
                   UINT64_MAX, records_.finished().newest() + 1 -
                                   std::min(walked_from_, records_.finished().newest() + 1)));
    for (const auto& r : late) TRY(check.same_cost(r.report.id, r.account.amount, r.tab));
    for (const auto& [id, job] : market_.jobs())
        TRY(check.same_cost(id, job.record.account.amount, job.record.tab));
    return LedgerSummary{check.receipts(),
                         ledger.accounts().size(),
                         check.paid(),
                         check.earned(),
                         check.paid() - check.earned(),
                         walk_->head(),
                         ""};
}

void LedgerKeeper::begin_backup(uint64_t connection, const Connection& c,
                                const wire::CtlRequest& request) {
    const auto refuse = [&](Cause why) { replies_.refuse(connection, request, std::move(why)); };
    if (request.uid != 0)
        return refuse({CauseCode::not_allowed, "only root may copy the market's records"});
    if (!c.local)
        return refuse({CauseCode::not_allowed,
                       "a backup is a file of the market's machine: ask there, without --node"});
    if (request.args.size() != 1 || !request.args[0].starts_with('/'))
        return refuse({CauseCode::invalid, "backup takes a file's absolute name"});
    if (request.after.empty()) {
        if (backup_)
            return refuse(
                {CauseCode::not_possible, "a backup to " + backup_->file + " is under way"});
        auto copy = StateCopy::begin(records_.state().db(), request.args[0]);
        if (!copy) return refuse(copy.error());
        backup_.emplace(Backup{request.args[0], std::move(*copy), 0, 0, {}, {}, {}, {}});
        backup_->step = loop_.after(Nanos{}, [this] { copy_on(); });
    } else if (!backup_ || backup_->file != request.args[0]) {
        return refuse("the backup has ended");
    }
    backup_->connection = connection;
    backup_->request = request.request;
    backup_->answer = loop_.after(answer_within, [this] {
        wire::CtlReply reply;
        reply.request = backup_->request;
        reply.ok = true;
        reply.next = "wait";
        connections_.send(backup_->connection, reply);
    });
}

void LedgerKeeper::copy_on() {
    constexpr int pages = 64;
    if (records_.state().journal().has_changes()) steps_.step();
    if (records_.state().journal().holds())
        return end_backup(fail("the records cannot be written now: ask again when they can"));
    const Result<bool> more = backup_->copy.step(pages);
    if (!more) return end_backup(tl::unexpected(more.error()));
    if (*more) {
        backup_->step = loop_.after(breath, [this] { copy_on(); });
        return;
    }
    // The mark is of this moment, with all that has been said by now.
    const ReceiptMark mark = records_.book().newest();
    auto file = backup_->copy.whole();
    if (!file) return end_backup(tl::unexpected(file.error()));
    backup_->synced = std::move(*file);
    auto sync = loop_.sync(backup_->synced.get(), 0, 0, [this, mark](const Status& done) {
        if (!done) return end_backup(tl::unexpected(done.error()));
        const Result<int64_t> bytes = backup_->copy.give_name();
        if (!bytes) return end_backup(tl::unexpected(bytes.error()));
        JsonWriter w;
        w.begin_object().field("file", backup_->file).field("bytes", *bytes);
        w.field("receipts", mark.seq).field("head", mark.head).end_object();
        log_.info("a backup is written",
                  {{"file", backup_->file}, {"bytes", *bytes}, {"receipts", mark.seq}});
        end_backup(w.take());
    });
    if (!sync) return end_backup(tl::unexpected(sync.error()));
    backup_->sync = std::move(*sync);
}

void LedgerKeeper::end_backup(Result<std::string> json) {
    wire::CtlReply reply;
    reply.request = backup_->request;
    reply.ok = json.has_value();
    if (json)
        reply.json = std::move(*json);
    else
        reply.error = json.error();
    const uint64_t connection = backup_->connection;
    loop_.defer([this] { backup_.reset(); });  // its own callback may be on the stack
    connections_.send(connection, reply);
}

// A receipt that is not here, or is another, was written by a later state of this market than the
// one that came up. One node's word is one warning, so that others' are seen, too.
void LedgerKeeper::heard_of_receipt(const NodeName& node, const ReceiptMark& seen,
                                    const std::string& here) {
    if (here == seen.head || !differing_.insert(node).second) return;
    const std::string told = "node " + node + " has seen receipt " + std::to_string(seen.seq);
    if (here.empty())
        warnings_.add(told + ", and the ledger that came up ended at " +
                      std::to_string(market_.ledger().last()) +
                      ": it is an older state (a backup that was put back?); what was charged "
                      "since is not in it");
    else
        warnings_.add(told +
                      " as another than the one here: the ledger that came up was an older state, "
                      "and has gone on since");
}

wire::CtlReply LedgerKeeper::compare(const Connection& c, const wire::CtlRequest& request) {
    if (request.uid != 0 || c.kind != Connection::Kind::agent)
        return refusal(request, "ledger-seen is a question of agents");
    if (!request.args.empty()) {
        const auto seen = parse_receipt_mark(request.args[0]);
        if (!seen) return refusal(request, seen.error());
        const auto here = records_.book().hash_of(seen->seq);
        if (!here) return refusal(request, here.error());
        heard_of_receipt(c.node, *seen, *here);
    }
    wire::CtlReply reply;
    reply.request = request.request;
    reply.ok = true;
    // The mark is the book's, whose numbers and hashes belong together: the market's own ledger may
    // be a step ahead of it.
    reply.json = '"' + records_.book().newest().text() + '"';
    return reply;
}

// The arguments: JOB, PROMISE.
wire::CtlReply LedgerKeeper::promise_missed(const Connection& c, const wire::CtlRequest& request) {
    if (request.uid != 0 || c.kind != Connection::Kind::agent)
        return refusal(request, "promise-missed is a word of agents");
    if (request.args.size() != 2) return refusal(request, "promise-missed takes JOB and PROMISE");
    const auto id = parse_job_id(request.args[0]);
    if (!id) return refusal(request, id.error());
    const std::string& promise = request.args[1];
    if (promise != "free_cpu" && promise != "free_memory" && promise != "empty")
        return refusal(request, "no promise has that name");
    const auto refund = market_.promise_missed(c.node, *id, promise, Loop::now());
    if (!refund) return refusal(request, refund.error());
    if (refund->micro > 0)
        log_.info("an owner has a refund", {{"NODE", c.node},
                                            {"JOB", id->text()},
                                            {"promise", promise},
                                            {"amount", format_money(*refund)}});
    wire::CtlReply reply;
    reply.request = request.request;
    reply.ok = true;
    reply.json = format_money(*refund);
    return reply;
}

void LedgerKeeper::close() {
    walk_timer_.cancel();
    backup_.reset();
}

}  // namespace souk
