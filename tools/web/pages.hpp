// SPDX-License-Identifier: GPL-2.0-or-later
// The pages of souk-web: from what the market answered (tools/common/replies.md) to HTML. Pure: no
// clock, connection or file, so that a test compares the text. tools/souk-web asks and sends.
#pragma once

#include <string>
#include <vector>

#include "tools/common/table.hpp"
#include "tools/web/html.hpp"

namespace souk::tools::web {

// A Listed is a part of a list. `next` is how the page of the next part is called (its query);
// empty: there is none.
struct Listed {
    Json rows = Json::array();
    std::string next;
    bool first = true;  // it is the list's beginning
};

// A visitor looks at a page.
struct Visitor {
    bool may_log_in = false;  // souk-web takes orders
    std::string name;         // who has logged in; empty: nobody
    uint64_t uid = 0;
    bool operates = false;  // an operator
    std::string form_key;   // what each form brings, as no other site can
};
// The whole page around a main part. `place`: which link of the navigation it is ("/jobs").
// `still`: the page is not loaded anew while it is open.
// `zone`: that of the times on it.
std::string document(const std::string& title, const std::string& market, const std::string& place,
                     const Html& main, const Visitor& visitor = {}, bool still = false,
                     const std::string& zone = "");

// A Fold leads from a group of jobs to the same page, on which its jobs stand below it.
struct Fold {
    std::string open = {};         // the group whose jobs are shown; empty: none
    std::string path = "/jobs";    // of this page, without a group
    std::string query = "?open=";  // what path needs before a group's id
};
Html board(const Json& status, const Listed& nodes, const Listed& jobs, const Json& prices,
           const Json& peers = Json::array(), const Fold& fold = {});
struct NodesView {
    std::string match;  // only names that hold it
};
Html nodes(const Listed& list, const NodesView& view);
struct JobsView {
    std::string state, user, node, group;
};
Html jobs(const Listed& list, const JobsView& view, const Fold& fold = {});
// `why`: what `marketctl why` says of it. `story`: an object, or null with `story_trouble`.
// `orders`: what its visitor can order (tools/web/actions.hpp).
Html job(const Json& one, const Json& why, const Json& story, const std::string& story_trouble,
         double now, const Html& orders = {});
Html node(const Json& one, const Json& why, const Listed& here, const Listed& before,
          const Fold& fold = {});
Html prices(const Json& rows, const std::string& span, double span_s);
// The page shows the jobs on nodes, a lane for each node, from `from` to `to` (Unix seconds).
// `receipts` and `running` are those of these nodes; `span` is as in the address.
struct OnNodes {
    Json receipts = Json::array(), running = Json::array();
    double from = 0, to = 0;
    std::string span;
};
Html on_nodes(const Listed& nodes, const OnNodes& what);
struct LedgerView {
    std::string job, user, node;
};
// `accounts`: a list, or null with `trouble`.
Html ledger(const Json& accounts, const std::string& trouble, const Listed& receipts,
            const LedgerView& view);
struct StatementView {
    std::string of;  // a user or a node; empty: who looks
};
// Shows each entry of one account, with what the account held then.
Html statement(const Listed& entries, const StatementView& view);
// Sums by `by` (user, node or day) of the last `span`.
Html report(const Json& rows, const std::string& by, const std::string& span);
// Why there is nothing to show.
Html trouble(const std::string& title, const std::string& what);

// Files of ours, as they are sent.
extern const std::string_view style_css, page_js, icon_svg;

}  // namespace souk::tools::web
