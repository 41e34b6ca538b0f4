// SPDX-License-Identifier: GPL-2.0-or-later
// These tests look at the pages of souk-web as text: at escaped words, at lists of several pages,
// and at the pictures of a job's life.
#include "tools/web/pages.hpp"
#include "tools/web/pictures.hpp"
#include "tools/web/tables.hpp"

#include "tests/unit/unit.hpp"

using namespace souk;
using namespace souk::tools::web;
using tools::Json;
using tools::parse_json;

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
    for (const Html& page :
         {job(job_row, why, story, "", 5), job(job_row, Json::object(), Json(), "<i>", 5),
          node(node_row, why, list, list), jobs(list, {"live", "<i>", "<i>"}),
          jobs(list, {"finish", "", ""}), nodes(of_nodes, {"<i>"}),
          board(status, of_nodes, list, Json::array()), trouble("<i>", "<i>")}) {
        ck_assert_msg(!has(page.str(), "<i>"), "%s", page.str().c_str());
        ck_assert(has(page.str(), "&lt;i&gt;"));
    }
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
    ck_assert_text(
        bars_of(R"({"left_out": 0, "steps": [
            {"at_unix_s": 100, "step": "submitted"}, {"at_unix_s": 110, "step": "priced"},
            {"at_unix_s": 120, "step": "started", "node": "n1"},
            {"at_unix_s": 150, "step": "moved", "from": "n1", "node": "n2"},
            {"at_unix_s": 190, "step": "frozen", "node": "n2"},
            {"at_unix_s": 300, "step": "thawed", "node": "n1"}]})",
                400),
        "waits 100-120 waits, 20.0s; n1 120-150 runs on n1, 30.0s; n2 150-190 runs on n2, 40.0s; "
        "n2 190-300 frozen on n2, 1m50s; n1 300-400 runs on n1, 1m40s; ");
    // The picture ends with the job, whatever time it is.
    ck_assert_text(bars_of(R"({"steps": [{"at_unix_s": 5, "step": "started", "node": "n1"},
                                         {"at_unix_s": 9, "step": "finished"}]})",
                           400),
                   "n1 5-9 runs on n1, 4.0s; ");
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
    ck_assert_msg(gap.ends_with("n1 7-7 runs on n1, 0.0s; n1 7-50 unknown on n1, 43.0s; "), "%s",
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

UNIT_SUITE(web, no_text_becomes_markup_and_no_text_leaves_its_address,
           a_list_leads_to_its_next_part_and_back_to_its_beginning,
           a_life_is_lanes_of_where_the_job_waited_ran_and_lay,
           a_line_of_prices_has_gaps_where_no_place_was_to_be_had,
           a_line_of_prices_is_as_long_as_the_market_is_old);
