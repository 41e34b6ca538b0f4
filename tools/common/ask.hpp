// SPDX-License-Identifier: GPL-2.0-or-later
// One question to a daemon, one answer: what pvdctl and marketctl do.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernel/base/result.hpp"
#include "kernel/base/time.hpp"

namespace souk::tools {

// The answer's JSON (replies.md): one text, or a long list in parts of which each is a list.
using Answer = std::vector<std::string>;
using FindSocket = std::function<Result<std::string>()>;
// Called each second while an answer is still to come, with how long the daemon has said nothing;
// 0: it has just said that there is none yet.
using Waiting = std::function<void(Nanos silent)>;
// Asks a daemon. If the daemon is away, or an agentd has no market, it is asked again for
// `patience`, because it may just be started again. An order is not repeated once it may have been
// heard. Errors: nobody listens, no answer in time, or the daemon's own words.
Result<Answer> ask(const FindSocket& find, const std::string& verb,
                   const std::vector<std::string>& args, Nanos patience,
                   const Waiting& waiting = {});
// Asks `once` until it answers or fails for good; ask() and its like are made of it.
Result<Answer> ask_again(const std::function<Result<Answer>()>& once, const std::string& verb,
                         Nanos patience);
// One part of a list, and where the next one goes on; `next` is empty after the last.
struct ListPart {
    std::string json, next;
};
// Asks once, for the part after `after` (empty: the first), and waits so long for an answer.
// Errors: as ask(); ETIMEDOUT.
Result<ListPart> ask_part(const FindSocket& find, const std::string& verb,
                          const std::vector<std::string>& args, const std::string& after,
                          Nanos limit);
// Joins the answer into one text. Errors: several parts that are not lists.
Result<std::string> joined(Answer answer);
// The text and a newline on stdout. Errors: nobody reads it.
Status print(const std::string& text);

}  // namespace souk::tools
