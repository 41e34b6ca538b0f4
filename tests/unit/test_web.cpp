// SPDX-License-Identifier: GPL-2.0-or-later
// These tests look at the pages of souk-web as text: at escaped words, at lists of several pages,
// and at the pictures of a job's life.
#include "tools/common/job_rows.hpp"
#include "tools/web/actions.hpp"
#include "tools/web/pages.hpp"
#include "tools/web/pictures.hpp"
#include "tools/web/tables.hpp"

#include "tests/unit/unit.hpp"

using namespace souk;
using namespace souk::tools::web;
using tools::Json;
using tools::local_time;
using tools::parse_json;
using tools::promise_words;

namespace {

bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

std::string bars_of(const char* story, double now) {
    const Lanes lanes = lanes_of_story(parse_json(story), now);
    std::string text;
    for (const Bar& bar : lanes.bars)
        text += lanes.names[bar.lane] + " " + std::to_string(static_cast<int>(bar.from)) + "-" +
                std::to_string(static_cast<int>(bar.to)) + " " + bar.label + "; ";
    return text;
}

}  // namespace

START_TEST(no_text_becomes_markup_and_no_text_leaves_its_address) {
    Html h;
    h.markup("<b title=\"").text("\"><script>'&").markup("\">");
    ck_assert_text(h.str(), "<b title=\"&quot;&gt;&lt;script&gt;&#39;&amp;\">");
    Html address;
    address.in_address("a/b?c=d&e#f %\xc3\xa9~");
    ck_assert_text(address.str(), "a%2Fb%3Fc%3Dd%26e%23f%20%25%C3%A9~");
    // Every field of the job holds markup here.
    const char* evil = R"({"id": "n1.1<i>", "user": "<i>", "status": "run<i>", "name": "<i>",
        "command": "<i>", "comment": "<i>", "where": "<i>", "going_to": "<i>", "places": ["<i>"],
        "submitted_unix_s": 1, "why": "<i>", "last_failed": "<i>", "address": "<i>",
        "cannot_move": "<i>", "hold": "<i>", "value": "<i>", "price": "<i>", "cost": "<i>"})";
    const Json job_row = parse_json(evil);
    const Json story = parse_json(R"({"steps": [{"at_unix_s": 1, "step": "moved<i>",
        "node": "<i>", "from": "<i>", "why": "<i>"},
        {"at_unix_s": 2, "step": "started", "node": "<i>"}]})");
    const Json node_row = parse_json(R"({"node": "<i>", "status": "<i>", "cannot": "<i>",
        "address": "<i>", "kernel": "<i>", "criu": "<i>", "restriction": "<i>"})");
    const Json why = parse_json(R"({"reasons": [{"text": "<i>"}]})");
    const Listed list{Json::array({job_row}), "", true},
        of_nodes{Json::array({node_row}), "", true};
    const Json status = parse_json(R"({"hostname": "<i>", "solver": "<i>", "warnings": ["<i>"]})");
    const Json peer = parse_json(R"({"site": "<i>", "connected": true, "owes": "<i>"})");
    for (const Html& page :
         {job(job_row, why, story, "", 5), job(job_row, Json::object(), Json(), "<i>", 5),
          node(node_row, why, list, list),
          jobs(list, {"live", "<i>", "<i>", "<i>"}, {"<i>", "/<i>", "<i>"}),
          jobs(list, {"finish", "", "", ""}), nodes(of_nodes, {"<i>"}),
          board(status, of_nodes, list, Json::array(), Json::array({peer})),
          trouble("<i>", "<i>")}) {
        ck_assert_msg(!has(page.str(), "<i>"), "%s", page.str().c_str());
        ck_assert(has(page.str(), "&lt;i&gt;"));
    }
    ck_assert(has(board(status, of_nodes, list, Json::array(), Json::array({peer})).str(),
                  "it owes us &lt;i&gt;"));
    ck_assert(!has(board(status, of_nodes, list, Json::array()).str(), "Other sites"));
    ck_assert(!has(document("<i>", "<i>", "/", {}), "<i>"));
}
END_TEST

START_TEST(a_list_leads_to_its_next_part_and_back_to_its_beginning) {
    Listed list;
    ck_assert(pager(list, "/jobs").empty());
    list.next = "?after=x&user=\"";
    ck_assert_text(pager(list, "/jobs").str(),
                   "<nav class=\"pager\" aria-label=\"Pages\"><a rel=\"next\" "
                   "href=\"/jobs?after=x&amp;user=&quot;\">More</a></nav>");
    list.first = false;
    list.next.clear();
    ck_assert(has(pager(list, "/jobs").str(), "<a href=\"/jobs\">To the beginning</a>"));
    ck_assert(has(document("Jobs", "lab", "/jobs", {}),
                  "<a href=\"/jobs\" aria-current=\"page\">Jobs</a>"));
}
END_TEST

START_TEST(a_life_is_lanes_of_where_the_job_waited_ran_and_lay) {
    ck_assert_text(bars_of(R"({"left_out": 0, "steps": [
            {"at_unix_s": 100, "step": "submitted"}, {"at_unix_s": 110, "step": "priced"},
            {"at_unix_s": 120, "step": "started", "node": "n1"},
            {"at_unix_s": 150, "step": "moved", "from": "n1", "node": "n2"},
            {"at_unix_s": 190, "step": "frozen", "node": "n2"},
            {"at_unix_s": 300, "step": "thawed", "node": "n1"}]})",
                           400),
                   "wait 100-120 wait, 20s; n1 120-150 run on n1, 30s; n2 150-190 run on n2, 40s; "
                   "n2 190-300 frozen on n2, 1m50s; n1 300-400 run on n1, 1m40s; ");
    // The picture ends with the job, whatever time it is.
    ck_assert_text(bars_of(R"({"steps": [{"at_unix_s": 5, "step": "started", "node": "n1"},
                                         {"at_unix_s": 9, "step": "finished"}]})",
                           400),
                   "n1 5-9 run on n1, 4s; ");
    ck_assert_text(bars_of(R"({"steps": []})", 400), "");
    // The time between the first eight steps and the newest ones is unknown, because the steps in
    // between were not kept.
    std::string steps;
    for (int i = 0; i < 8; ++i)
        steps += R"({"at_unix_s": )" + std::to_string(i) + R"(, "step": "started", "node": "n1"},)";
    const std::string gap = bars_of(
        (R"({"left_out": 3, "steps": [)" + steps + R"({"at_unix_s": 50, "step": "finished"}]})")
            .c_str(),
        60);
    ck_assert_msg(gap.ends_with("n1 7-7 run on n1, 0s; n1 7-50 unknown on n1, 43s; "), "%s",
                  gap.c_str());
}
END_TEST

START_TEST(a_line_of_prices_has_gaps_where_no_place_was_to_be_had) {
    const std::vector<Stretch> prices = {
        {1'000, 1'100, 1}, {1'100, 1'200, 2}, {1'200, 1'300, -1}, {1'300, 1'400, 4}};
    const std::string line = line_picture(prices, 1'000, 1'400, "prices").str();
    ck_assert(has(line, "<polyline points=\"0.0,59.0 150.0,59.0 150.0,40.0 300.0,40.0 \"/>"));
    ck_assert(has(line, "<polyline points=\"450.0,2.0 600.0,2.0 \"/>"));
    ck_assert(!has(line_picture({}, 0, 60, "none").str(), "polyline"));
}
END_TEST

START_TEST(a_line_of_prices_is_as_long_as_the_market_is_old) {
    // Prices are known for the last twenty minutes of six hours, and for five minutes a little
    // earlier. The line has a gap in between.
    const std::vector<Stretch> prices = {{19'800, 20'100, 1}, {20'400, 21'600, 2}};
    const std::string line = line_picture(prices, 0, 21'600, "prices").str();
    ck_assert(has(line, "<polyline points=\"550.0,40.0 558.3,40.0 \"/>"));
    ck_assert(has(line, "<polyline points=\"566.7,2.0 600.0,2.0 \"/>"));
}
END_TEST

START_TEST(a_figure_has_three_digits_at_most_and_what_does_not_apply_is_a_dash) {
    using tools::three_digits;
    ck_assert_text(three_digits("640.0 MB of 1.2 GB, 55.0 MB/s"), "640 MB of 1.2 GB, 55 MB/s");
    ck_assert_text(three_digits("14.333333"), "14.3");
    ck_assert_text(three_digits("0.014128"), "0.0141");
    ck_assert_text(three_digits("0.000016"), "0.000016");
    ck_assert_text(three_digits("1234.56 0.0s 100.0"), "1235 0s 100");
    ck_assert_text(three_digits("n1.24 on 10.0.0.1, 0.1.2"), "n1.24 on 10.0.0.1, 0.1.2");
    const Json rows = parse_json(R"([
        {"id": "n1.1", "user": "ann", "status": "wait", "value": 40, "price": 0, "cost": 0},
        {"id": "n1.2", "user": "ann", "status": "suspend", "value": 40, "price": 2, "cost": 0.5},
        {"id": "n1.3", "user": "ann", "status": "run", "value": 40, "price": 12.3456,
         "cost": 0.0141283, "where": "n1"}])");
    const std::string page = jobs({rows, "", true}, {"live", "", "", ""}).str();
    ck_assert(has(page, "<td data-title=\"Price\" class=\"number no\"><span>-</span>"));
    ck_assert(has(page, "<td data-title=\"Cost\" class=\"number\"><span>0</span>"));
    ck_assert(has(page, "<span>12.3</span>") && has(page, "<span>0.0141</span>"));
    ck_assert(has(page, "<span class=\"state frozen\">frozen</span>"));
    ck_assert(!has(page, "none</span>") && !has(page, "suspend"));
    const Json off = parse_json(R"([{"node": "n1", "status": "off", "guests": 0, "reserve": 0,
                                     "current_price": 0, "next_price": 0, "earned": 0}])");
    const std::string nodes_page = nodes({off, "", true}, {""}).str();
    ck_assert(has(nodes_page, "<span class=\"state off\">off</span>"));
    ck_assert(has(nodes_page, "\"Next price\" class=\"number no\"><span>-</span>"));
    ck_assert(has(nodes_page, "\"Reserve\" class=\"number minor\"><span>0</span>"));
}
END_TEST

START_TEST(a_promise_of_a_deadline_is_told_in_one_line) {
    Json job = {{"id", "n1.7"},
                {"promise", "open"},
                {"promise_unix_s", 1'700'000'000},
                {"promise_price", 3.5},
                {"promise_start_unix_s", 1'699'999'000},
                {"promise_node", "n2"}};
    const std::string by = local_time(job, "promise_unix_s"),
                      from = local_time(job, "promise_start_unix_s");
    ck_assert_text(promise_words(job), by + ", promised on n2 from " + from + " on, at 3.5");
    job["promise"] = "kept";
    ck_assert_text(promise_words(job), by + ", kept");
    job["promise"] = "late";
    job["promise_why"] = "its home was away";
    ck_assert_text(promise_words(job), by + ", missed: its home was away");
    ck_assert_text(promise_words({{"promise", "best_effort"}, {"finish_s", 7200}}),
                   "2h00m after the submission, best effort");
    ck_assert_text(promise_words({{"id", "n1.7"}}), "-");
}
END_TEST

START_TEST(an_array_is_one_row_that_leads_to_its_jobs) {
    const Json rows = parse_json(R"([
        {"group": "n1.7", "kind": "array", "jobs": 12, "states": {"run": 4, "suspend": 8},
         "cost": 0.5, "runtime_s": 80, "price_least": 0.5, "price_most": 1, "nodes": 6,
         "where": ["n1", "n2", "n3", "n4"],
         "first": {"id": "n1.9", "user": "ann", "status": "suspend", "value": 20, "array": "n1.7",
                   "array_index": 3, "name": "sweep", "comment": "outbid"}},
        {"id": "n1.9", "user": "ann", "status": "suspend", "array": "n1.7", "array_index": 3,
         "name": "sweep", "part_of": "n1.7"}])");
    const Fold closed{"", "/jobs?user=ann", "&open="}, open{"n1.7", "/jobs?user=ann", "&open="};
    std::string page = jobs({rows, "", true}, {"live", "ann", "", ""}, closed).str();
    ck_assert(has(page, "href=\"/jobs?user=ann&amp;open=n1.7\" aria-expanded=\"false\">n1.7[12]<"));
    ck_assert(has(page,
                  "<span class=\"state run\">4 run</span> "
                  "<span class=\"state frozen\">8 frozen</span>"));
    ck_assert(has(page, "<span>0.5-1</span>") && has(page, "/node/n4\">n4</a> and 2 more"));
    ck_assert(has(page, "outbid <a href=\"/jobs?group=n1.7\">its jobs</a>"));
    ck_assert(has(page, "<tr class=\"part\">") && has(page, "sweep[3]"));
    page = jobs({rows, "", true}, {"live", "ann", "", ""}, open).str();
    ck_assert(has(page, "href=\"/jobs?user=ann\" aria-expanded=\"true\">n1.7[12]<"));
}
END_TEST

START_TEST(finished_jobs_of_an_array_are_one_row_where_the_newest_stands) {
    const Json jobs = parse_json(R"([
        {"id": "n1.9", "exit": 0, "ended_unix_s": 90, "cost": 1},
        {"id": "n1.8", "array": "n1.5", "exit": 3, "ended_unix_s": 80, "cost": 2,
         "runtime_s": 4, "migrations": 1, "user": "ada", "name": "sweep"},
        {"id": "n1.4", "gang": "n1.4", "exit": 0, "ended_unix_s": 70},
        {"id": "n1.7", "array": "n1.5", "exit": 0, "ended_unix_s": 60, "cost": 3,
         "runtime_s": 5, "migrations": 2, "user": "ada", "name": "sweep"}])");
    const Json rows = tools::folded_history(jobs);
    ck_assert_uint_eq(rows.size(), 3);
    ck_assert_text(tools::row_title(rows[0]), "n1.9");
    ck_assert_text(tools::row_title(rows[1]), "n1.5[2]");
    ck_assert_text(tools::row_title(rows[2]), "n1.4");  // alone, it is a job
    const Json& group = rows[1];
    ck_assert_text(group["exit"].get<std::string>(), "1 failed");
    ck_assert(group["ended_unix_s"] == 80.0 && group["cost"] == 5.0 && group["runtime_s"] == 9.0);
    ck_assert(group["migrations"] == 3);
    JobsView view;
    view.state = "finish";
    const std::string page = souk::tools::web::jobs({rows, "", true}, view).str();
    ck_assert(has(page, "<a href=\"/history?group=n1.5\">n1.5[2]</a>"));
    ck_assert(has(page, "1 failed") && has(page, "ada") && has(page, "sweep"));
}
END_TEST

START_TEST(each_visitor_is_offered_what_he_may_order) {
    const auto offered = [](const char* status, const char* hold, const Visitor& visitor) {
        const Json job = {{"id", "n1.7"}, {"uid", 7U}, {"status", status}, {"hold", hold}};
        const std::string text = actions_of(job, visitor).str();
        std::string names;
        for (size_t at = text.find("/job/n1.7/"); at != std::string::npos;
             at = text.find("/job/n1.7/", at + 1)) {
            const size_t from = at + 10;
            names += (names.empty() ? "" : " ") + text.substr(from, text.find('"', from) - from);
        }
        return names;
    };
    Visitor own{true, "ann", 7, false, "key"}, other{true, "bob", 8, false, "key"},
        root{true, "root", 0, true, "key"};
    ck_assert_text(offered("run", "", own), "freeze hold cancel");
    ck_assert_text(offered("wait", "", own), "hold cancel");
    ck_assert_text(offered("suspend", "", own), "thaw hold cancel");
    ck_assert_text(offered("suspend", "by_user", own), "thaw release cancel");
    ck_assert_text(offered("suspend", "frozen", own), "cancel");  // an operator holds it
    ck_assert_text(offered("run", "", other), "");
    ck_assert_text(offered("run", "", root), "move freeze hold cancel");
    ck_assert_text(offered("suspend", "frozen", root), "move thaw release cancel");
    ck_assert_text(offered("finish", "", root), "");
    const Json job = parse_json(R"({"id": "n1.7", "status": "run", "where": "n1", "user": "ann"})");
    const Json all = parse_json(R"([{"node": "n1", "status": "busy", "speed": 100},
        {"node": "n2", "status": "free", "speed": 80, "next_price": 12.3456},
        {"node": "n3", "status": "off", "speed": 60}])");
    const std::string asked = action_question(*action_named("move"), job, root, all, false).str();
    ck_assert(has(asked, "<option value=\"n1\" disabled>n1: it runs there"));
    ck_assert(has(asked, "<option value=\"n2\">n2: free, speed 80, next price 12.3 per CPU-hour<"));
    ck_assert(has(asked, "<option value=\"n3\" disabled>n3: off"));
    ck_assert(has(asked, "name=\"hold\""));
    ck_assert(has(action_question(*action_named("move"), job, root, all, true).str(), "<datalist"));
    ck_assert(
        !has(action_question(*action_named("freeze"), job, own, {}, false).str(), "name=\"hold\""));
    ck_assert(has(action_question(*action_named("cancel"), job, own, {}, false).str(),
                  "<button class=\"danger\">Cancel job n1.7"));
}
END_TEST

START_TEST(an_empty_page_says_what_to_do_next_and_an_axis_has_times_and_a_zone) {
    const Listed none;
    ck_assert(has(board(Json::object(), none, none, Json::array()).str(),
                  "<code>srun -p 40 PROGRAM</code>"));
    ck_assert(has(nodes(none, {""}).str(), "<code>souk setup node</code>"));
    ck_assert(has(nodes(none, {"x"}).str(), "<a href=\"/nodes\">All nodes</a>"));
    ck_assert(has(jobs(none, {"wait", "", "", ""}).str(), "<a href=\"/jobs\">All live jobs</a>"));
    setenv("TZ", "UTC", 1);
    tzset();
    const std::string line = line_picture({{0, 21'600, 2.5}}, 0, 21'600, "prices").str();
    ck_assert(has(line, "<div class=\"scale\"><span>2.5</span><span>0</span></div>"));
    ck_assert(has(line,
                  "<span>00:00</span><span>01:30</span><span>03:00</span><span>04:30</span>"
                  "<span>06:00 UTC</span>"));
    ck_assert(has(document("Board", "lab", "/", {}, {}, false, "CET"), "Times are in CET."));
}
END_TEST

UNIT_SUITE(web, a_figure_has_three_digits_at_most_and_what_does_not_apply_is_a_dash,
           a_promise_of_a_deadline_is_told_in_one_line, an_array_is_one_row_that_leads_to_its_jobs,
           finished_jobs_of_an_array_are_one_row_where_the_newest_stands,
           each_visitor_is_offered_what_he_may_order,
           an_empty_page_says_what_to_do_next_and_an_axis_has_times_and_a_zone,
           no_text_becomes_markup_and_no_text_leaves_its_address,
           a_list_leads_to_its_next_part_and_back_to_its_beginning,
           a_life_is_lanes_of_where_the_job_waited_ran_and_lay,
           a_line_of_prices_has_gaps_where_no_place_was_to_be_had,
           a_line_of_prices_is_as_long_as_the_market_is_old);
