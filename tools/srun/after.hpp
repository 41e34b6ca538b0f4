// SPDX-License-Identifier: GPL-2.0-or-later
// srun --after: for the end of which jobs a job waits.
#pragma once

#include <string>

#include "agentd/wire/messages.hpp"
#include "tools/common/link.hpp"

namespace souk::tools {

// ID[:ok|:notok|:each], several with commas between (all have to end so) or with ? (one of them
// has to). Into the request, once the home has said which jobs are meant. Errors: another form, no
// such job, or one of another home.
Status take_after(Link& link, const std::string& after, wire::Submit& request);
// The form alone.
Status check_after(const std::string& after, bool of_array);

}  // namespace souk::tools
