// SPDX-License-Identifier: GPL-2.0-or-later
// Journal: what a daemon's machines persist, and when what they say may leave. It holds the records
// that are to be put or erased, the newest of each name, and what waits for them: a shell puts the
// records of a step, hands over what the step sends and does (`then`), and at the end of its
// iteration calls flush(), which commits what is due and returns what may go now, in order.
//
//   now    committed by the next flush; what was handed over goes after that commit
//   soon   committed when what that flush let go has left: a tick of its own. Only the newest of a
//          name may be lost so: an older one that still waits becomes due at once
//   later  with the next commit, at the latest a second after it was put; so is an erase
//
// A commit takes all that is due or later, in one transaction. One that fails (a full disk) changes
// nothing: the store's reserve of room is given up once and the commit tried again; if that fails
// too, the journal holds: nothing is let go, whatever is put or handed over waits, and it is tried
// again each second. The reserve is taken again when there is room.
//
// An erased record may be a secret. So ten seconds after a commit that erased something the store
// is told to leave no traces of it, at most once in ten seconds.
//
// Pure: no clock (times are passed in) and no I/O (the store is behind an interface). Its owner
// calls flush() when due() says so, at the latest before anything of the iteration leaves, and
// tick() at next(). A crash is a journal that is not there any more: what was not committed is
// lost, and nothing that depends on it has left. Nothing is called from within: what flush()
// returns is run by the caller, and may put and hand over more. Owned by the daemon's shell; the
// store outlives it.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "kernel/base/durable.hpp"
#include "kernel/base/records.hpp"
#include "kernel/base/result.hpp"
#include "kernel/base/time.hpp"

namespace souk {

class Journal {
  public:
    using Call = std::function<void()>;

    class Store {
      public:
        virtual ~Store() = default;
        // Commits all of them or none. Ok: they are durable.
        virtual Status commit(const Changes& changes) = 0;
        // Gives up a reserve of room that is kept for commits alone. False: there is none.
        virtual bool give_room() = 0;
        // Takes the reserve again. False: there is no room for it.
        virtual bool take_room() = 0;
        // Tells whether the store's files still show what a commit has erased. scrub() ends that;
        // false: it cannot now.
        virtual bool leaves_traces() const { return false; }
        virtual bool scrub() { return true; }
    };

    explicit Journal(Store& store) : store_(&store) {}

    void put(std::string_view kind, std::string_view key, std::string record, Durable when);
    void erase(std::string_view kind, std::string_view key, Durable when = Durable::later);
    // Runs the call when the changes that were put to be durable `now` are durable, and after the
    // calls that were handed over before it.
    void then(Call call);
    // Runs the call when each erase so far is durable, before the other calls of that commit.
    void after_erases(Call call);
    bool erases_wait() const { return erases_wait_; }
    // Returns the value that the next commits will give a record. Null: no change is noted, and the
    // store has the value.
    const std::optional<std::string>* noted(std::string_view kind, std::string_view key) const;
    bool has_changes() const { return !changes_.empty() || !soon_.empty(); }

    // Tells whether flush() is needed before anything may leave.
    bool due() const { return flush_due_; }
    struct Flushed {
        Status committed;         // else the journal holds
        bool gave_room = false;   // the reserve is used up
        std::vector<Call> calls;  // what may go, in this order
    };
    Flushed flush(Nanos now);
    // A commit has failed, and none has succeeded since.
    bool holds() const { return holds_; }
    // When tick() is wanted; never() if it is not. A time that has come already (soon records): as
    // soon as what was let go has left.
    Nanos next() const;
    void tick(Nanos now);
    void take_room(Nanos now);
    // The end of the daemon: commits what could wait. What waits to go is dropped.
    Status finish();

  private:
    void ask() { flush_due_ = flush_due_ || !holds_; }
    void take_soon();
    Status commit(Nanos now, Flushed& flushed);

    Store* store_;
    Changes changes_;  // the next commit's
    Changes soon_;     // newer than what those have of the same name
    std::vector<Call> then_, after_erases_;
    bool flush_due_ = false, commit_due_ = false, holds_ = false;
    bool erases_wait_ = false, soon_waits_ = false, later_waits_ = false;
    Nanos soon_at_ = Nanos::never(), later_at_ = Nanos::never(), retry_at_ = Nanos::never(),
          room_at_ = Nanos::never(), scrub_at_ = Nanos::never();
};

}  // namespace souk
