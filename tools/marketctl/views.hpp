// SPDX-License-Identifier: GPL-2.0-or-later
// The market's answers (tools/common/replies.md) as text for people, one file for each verb that
// shows something. Errors: the answer is not what replies.md says.
#pragma once

#include <string>

#include "kernel/base/result.hpp"
#include "tools/common/ask.hpp"

namespace souk::tools {

Result<std::string> status_text(const Answer& answer);
Result<std::string> limits_text(const Answer& answer);
Result<std::string> message_text(const Answer& answer);  // what was done, in words
Result<std::string> providers_text(const Answer& answer);
Result<std::string> site_news_text(const Answer& answer);
Result<std::string> reservations_text(const Answer& answer);
Result<std::string> offers_text(const Answer& answer);
// The named resources of an answer that has `resources`.
std::string resources_text(const Json& has);
Result<std::string> job_text(const Answer& answer);
Result<std::string> reasons_text(const Answer& answer);
Result<std::string> story_text(const Answer& answer);
Result<std::string> verbose_story_text(const Answer& answer);  // with the words of CRIU
Result<std::string> load_text(const Answer& answer);
Result<std::string> dump_text(const Answer& answer);
Result<std::string> accounts_text(const Answer& answer);
Result<std::string> receipts_text(const Answer& answer);
Result<std::string> prices_text(const Answer& answer);
Result<std::string> ledger_text(const Answer& answer);
Status ledger_verdict(const Answer& answer);
Result<std::string> backup_text(const Answer& answer);
Result<std::string> restore_text(const Answer& answer);

}  // namespace souk::tools
