// SPDX-License-Identifier: GPL-2.0-or-later
// mmon's lines, as text: what the market answers and how it is looked at make 24 lines of 80
// characters.
#include "tools/common/monitor.hpp"

#include "market/core/reason.hpp"
#include "tests/unit/unit.hpp"

using namespace souk;
using namespace souk::tools::mmon;
using tools::Json;
using tools::parse_json;

namespace {

Seen some() {
    Seen s;
    s.status = parse_json(R"({"hostname": "lab", "solver": "greedy_migration",
        "jobs": {"run": 2, "wait": 1, "suspend": 0}})");
    s.nodes = parse_json(R"([
        {"node": "n1", "status": "busy", "guests": 1, "load_permille": 984, "current_price": 12.5,
         "next_price": 31, "reserve": 2, "speed": 100, "cpus": 1, "memory_mb": 900, "free_mb": 400,
         "earned": 0.25},
        {"node": "n10", "status": "off", "guests": 0, "leaving": 2, "leaving_of": 5,
         "load_permille": 3, "current_price": 0,
         "next_price": 0, "reserve": 1, "speed": 80, "cpus": 4, "memory_mb": 8000,
         "free_mb": 7000, "earned": 0},
        {"node": "n2", "status": "free", "guests": 0, "load_permille": 0, "current_price": 0,
         "next_price": 1, "reserve": 1, "speed": 300, "cpus": 2, "memory_mb": 2000,
         "free_mb": 2000, "earned": 3}])");
    s.jobs = parse_json(R"([
        {"id": "n1.2", "user": "ann", "status": "run", "where": "n1", "value": 40, "price": 12.5,
         "cost": 0.5, "runtime_s": 725, "name": "night", "command": "sh", "comment": ""},
        {"id": "n1.10", "user": "jürgen", "status": "moving", "where": "n1", "going_to": "n2",
         "value": 30, "price": 1, "cost": 0, "runtime_s": 3, "name": "", "command": "./simulate",
         "comment": "a node of speed 300 is free", "image_bytes": 5000000,
         "sent_bytes": 2000000, "sending_bytes": 5500000, "sent_bytes_per_s": 1000000,
         "forecast_total_ms": 812.3},
        {"id": "n1.3", "user": "bob", "status": "wait", "value": 9, "runtime_s": 0, "name": "",
         "command": "xz", "comment": "outbid; 41 would win a place"}])");
    s.prices = parse_json(R"([{"least": 1}, {"closed_s": 60}, {"least": 4}, {"least": 8}])");
    return s;
}

std::string text_of(const Seen& seen, View& view, size_t rows = 24, size_t columns = 80) {
    std::string text;
    const auto lines = screen(seen, view, rows, columns);
    ck_assert_uint_eq(lines.size(), rows);
    for (const Line& line : lines)
        text += (line.kind == Line::Kind::selected ? ">" : "") + line.text + "\n";
    while (text.ends_with("\n\n")) text.pop_back();
    return text;
}

View plain() {
    View view;
    view.unicode = false;
    return view;
}

}  // namespace

START_TEST(nodes_and_jobs_are_there_at_once_in_24_lines_of_80_characters) {
    View view = plain();
    const std::string text = text_of(some(), view);
    const std::string upper =
        "souk lab  nodes 3: 2 on, 1 busy  jobs: 2 run, 1 wait, 0 frozen  greedy_migration\n"
        "a place costs 8; prices are per CPU-hour; 6 hours: . =@\n"
        "NODE+ STATE         JOBS LOAD PRICE NEXT RESERVE SPEED CPUS FREE MEMORY EARNED\n"
        "n1    busy             1  98%  12.5   31       2   100    1  400/900 MB   0.25\n"
        "n2    free             0   0%     -    1       1   300    2      2/2 GB      3\n"
        "n10   off, 3/5 gone    0   0%     -    -       1    80    4  6.8/7.8 GB      0\n"
        "JOB   USER   STATE  WHERE BID PRICE NAME       WHY\n"
        ">n1.2  ann    run    n1     40  12.5 night      -\n"
        "n1.10 jürgen moving n1>n2  30     1 ./simulate a node of speed 300 is free\n"
        "n1.3  bob    wait   -       9     - xz         outbid; 41 would win a place\n";
    ck_assert_text(text.substr(0, upper.size()), upper);
    ck_assert(text.find("JOB+  STEP   FROM TO SENT") != std::string::npos);
    ck_assert(text.ends_with(
        "F1Help TabPanel F4Filter F5Open F6Sort F7Move F8Freeze F9Cancel F10Quit\n"));
    for (const Line& line : screen(some(), view, 24, 40)) ck_assert_uint_le(line.text.size(), 44);
}
END_TEST

// Each word at the end of a reason that is cut is a whole one.
START_TEST(a_reason_is_cut_at_a_word_and_keeps_its_place_at_80_columns) {
    Seen seen = some();
    seen.jobs = Json::array();
    for (int i = 1; i <= 9; ++i)
        seen.jobs.push_back({{"id", "node-with-a-name." + std::to_string(1'000 + i)},
                             {"user", "somebody"},
                             {"status", "wait"},
                             {"value", 123456.5},
                             {"cost", 0.000123},
                             {"runtime_s", 90'000},
                             {"name", "a-job-with-a-very-long-name"},
                             {"cpus", 4},
                             {"memory_mb", 4'096},
                             {"comment", "outbid; 26 would win a place, or 1234567 on n10"}});
    for (size_t columns = 50; columns <= 200; ++columns) {
        View view = plain();
        size_t reasons = 0;
        for (const Line& line : screen(seen, view, 24, columns)) {
            ck_assert_uint_le(line.text.size(), columns);
            const size_t at = line.text.find("outbid");
            if (at == std::string::npos) continue;
            ++reasons;
            std::string reason = line.text.substr(at);
            const std::string whole = "outbid; 26 would win a place, or 1234567 on n10 ";
            if (reason.ends_with("~")) {
                reason.pop_back();
                ck_assert_msg(whole.starts_with(reason + " "), "%s", line.text.c_str());
            } else {
                ck_assert_text(reason + " ", whole);
            }
            if (columns >= 80) ck_assert(reason.find("26") != std::string::npos);
        }
        ck_assert_uint_eq(reasons, 9);
    }
}
END_TEST

// Half of a number would be another number: "outbid; 2" for 26.
START_TEST(no_reason_is_cut_within_a_number_whatever_the_width) {
    const auto is_whole = [](std::string part, const std::string& whole) {
        if (part.ends_with("~")) part.pop_back();
        ck_assert_msg((whole + " ").starts_with(part + " "), "'%s' of '%s'", part.c_str(),
                      whole.c_str());
    };
    for (const market::ReasonWords& words : market::reason_table()) {
        const std::string whole =
            fill_words(words.text, [](std::string_view) { return std::string("4711"); });
        if (whole.empty()) continue;
        Seen seen = some();
        seen.jobs[2]["comment"] = whole;
        seen.trouble = whole;
        for (size_t columns = 60; columns <= 120; ++columns) {
            View view = plain();
            const auto lines = screen(seen, view, 24, columns);
            is_whole(lines.back().text, whole);
            size_t why = std::string::npos;
            for (const Line& line : lines) {
                if (line.text.find("WHY") != std::string::npos) why = line.text.find("WHY");
                if (line.text.starts_with("n1.3 ") && why < line.text.size())
                    is_whole(line.text.substr(why), whole);
            }
            ck_assert(why != std::string::npos);
        }
    }
}
END_TEST

START_TEST(a_window_of_200_columns_shows_more_columns_and_whole_reasons) {
    View view = plain();
    const std::string text = text_of(some(), view, 50, 200);
    // Lines that no panel needs show all of the chosen job.
    for (const char* part :
         {"\nn1.2\n", "runtime                12m05s", "RESERVE", "CPU WAIT JOBS HERE", "MEMORY",
          "MOVES", " n1.2\n", "outbid; 41 would win a place\n"})
        ck_assert_msg(text.find(part) != std::string::npos, "%s in\n%s", part, text.c_str());
}
END_TEST

START_TEST(states_have_the_colours_of_the_pages) {
    View view = plain();
    std::string painted;
    for (const Line& line : screen(some(), view, 24, 80))
        for (const Line::Paint& paint : line.paints) {
            std::string word = line.text.substr(paint.from, paint.length);
            word.erase(word.find_last_not_of(' ') + 1);
            painted += word + " " + std::to_string(static_cast<int>(paint.colour)) + "; ";
        }
    // The letter of two bytes stands before a state, and a paint counts characters.
    ck_assert_text(painted, "busy 1; free 1; off, 3/5 gone 6; run 1;  movin 4; wait 2; moving 4; ");
}
END_TEST

START_TEST(an_array_is_one_row_that_unfolds) {
    Seen seen = some();
    seen.jobs = parse_json(R"([
        {"id": "n1.1", "user": "ann", "status": "wait", "value": 5, "name": "one"},
        {"id": "n1.2", "user": "ann", "status": "suspend", "value": 9, "name": "sweep",
         "array": "n1.2", "array_index": 1, "comment": "displaced by job n1.9", "cost": 0.5},
        {"id": "n1.3", "user": "ann", "status": "run", "where": "n1", "value": 9, "price": 4,
         "name": "sweep", "array": "n1.2", "array_index": 2, "cost": 0.25, "runtime_s": 3},
        {"id": "n1.4", "user": "ann", "status": "run", "where": "n2", "value": 9, "price": 1.5,
         "name": "sweep", "array": "n1.2", "array_index": 3},
        {"id": "n1.5", "user": "ann", "status": "suspend", "stopped_in_place": true, "value": 9,
         "name": "alone", "gang": "n1.5", "component": 0}])");
    View view = plain();
    std::string text = text_of(seen, view);
    const std::string rows =
        "JOB      USER STATE  WHERE BID PRICE NAME     WHY\n"
        ">+n1.2[3] ann  2 run  n1+1    9 1.5-4 sweep    1 frozen: displaced by job n1.9\n"
        "n1.1     ann  wait   -       5     - one      -\n"
        "n1.5     ann  stands -       9     - alone[0] -\n";
    ck_assert_text(text.substr(text.find("JOB ")).substr(0, rows.size()), rows);
    ck_assert_text(chosen(seen, view), "n1.2");
    ck_assert_text(chosen_group(seen, view), "array");
    press("enter", seen, view);
    text = text_of(seen, view);
    ck_assert(text.find("\n>-n1.2[3] ann") != std::string::npos);
    ck_assert(text.find("\n  n1.3   ann  run") != std::string::npos);
    press("down", seen, view);
    ck_assert_text(chosen(seen, view), "n1.2");
    ck_assert_text(chosen_group(seen, view), "");
    press("up", seen, view);
    press("enter", seen, view);
    ck_assert(text_of(seen, view).find("n1.3 ") == std::string::npos);
    // A filter looks at each job.
    view.filter = "sweep[2]";
    ck_assert_text(chosen(seen, view), "n1.3");
    ck_assert(once(seen, plain()).find("\nn1.4 ") != std::string::npos);
}
END_TEST

START_TEST(jobs_and_moves_are_sorted_filtered_and_opened) {
    const Seen seen = some();
    View view = plain();
    press("down", seen, view);
    ck_assert_text(chosen(seen, view), "n1.10");
    press(">", seen, view);
    ck_assert(text_of(seen, view).find("\nJOB+ ") != std::string::npos);
    for (int i = 0; i < 4; ++i) press(">", seen, view);
    press("I", seen, view);  // the highest bid first
    press("end", seen, view);
    ck_assert_text(chosen(seen, view), "n1.3");
    view.filter = "win a place";
    press("home", seen, view);
    ck_assert_text(chosen(seen, view), "n1.3");
    ck_assert(text_of(seen, view).find("filter: win a place\n") != std::string::npos);
    press("enter", seen, view);
    ck_assert(text_of(seen, view).find("comment                outbid; 41 would win a place\n") !=
              std::string::npos);
    press("escape", seen, view);
    view.filter.clear();
    press("tab", seen, view);
    std::string text = text_of(seen, view, 30);
    const std::string moves =
        "JOB+  STEP   FROM TO SENT                   EXPECTED WHY\n"
        ">n1.10 moving n1   n2 2 MB of 5.5 MB, 1 MB/s   812 ms a node of speed 300 is free\n";
    ck_assert_text(text.substr(text.find("JOB+"), moves.size()), moves);
    press("tab", seen, view);
    press("enter", seen, view);
    ck_assert(text_of(seen, view).find("job n1.2               ann, run, pays 12.5\n") !=
              std::string::npos);
    press("h", seen, view);
    ck_assert(text_of(seen, view).find("F9 k       cancel the chosen job") != std::string::npos);
}
END_TEST

START_TEST(what_is_chosen_stays_in_view_and_a_small_terminal_is_enough) {
    Seen seen = some();
    seen.nodes = Json::array();
    for (int i = 1; i <= 100; ++i)
        seen.nodes.push_back({{"node", "n" + std::to_string(i)}, {"status", "free"}});
    View view = plain();
    view.panel = Panel::nodes;
    press("end", seen, view);
    ck_assert(text_of(seen, view, 10).find(">n100") != std::string::npos);
    press("up", seen, view);
    ck_assert(text_of(seen, view, 10).find(">n99") != std::string::npos);
    press("page_up", seen, view);
    ck_assert(text_of(seen, view, 10).find(">n89") != std::string::npos);
    press("home", seen, view);
    ck_assert(text_of(seen, view, 10).find(">n1 ") != std::string::npos);
    for (const size_t rows : {4, 5, 6})
        ck_assert_uint_eq(screen(seen, view, rows, 20).size(), rows);
    seen.trouble = "no market";
    ck_assert_text(screen(seen, view, 24, 80).back().text, "no market");
    ck_assert_text(screen(Seen{}, view, 24, 80).front().text,
                   "souk -  nodes 0: 0 on, 0 busy  jobs: - run, - wait, - frozen  -");
}
END_TEST

START_TEST(once_prints_all_there_is_and_no_control_character) {
    Seen seen = some();
    seen.jobs[2]["comment"] = "a\x1b[2Jb";
    const std::string text = once(seen, plain());
    ck_assert(text.find("n1.3") != std::string::npos && text.find("n10") != std::string::npos &&
              text.find('\x1b') == std::string::npos && text.find("a [2Jb") != std::string::npos);
    ck_assert_text(sparkline({0, 1, 2, 4, -1, 8}, 4, false), ":= @");
}
END_TEST

START_TEST(peers_are_one_line_and_who_owes_is_told_where_it_is_known) {
    Seen seen = some();
    View view = plain();
    ck_assert(text_of(seen, view).find("sites:") == std::string::npos);
    seen.peers = parse_json(R"([
        {"site": "far", "connected": false, "guests": 0, "lent": 0},
        {"site": "uni", "connected": true, "guests": 2, "lent": 1, "owes": -3.5}])");
    ck_assert(once(seen, plain())
                  .find("sites: far away: 0 jobs of it here, 0 of ours there; uni "
                        "connected: 2 jobs of it here, 1 of ours there, we owe it "
                        "3.5\n") != std::string::npos);
    ck_assert_uint_eq(screen(seen, view, 24, 80).size(), 24);
    seen.peers[1]["owes"] = 2;
    seen.peers[1]["site"] = "u\x1b[2J";
    const std::string text = once(seen, plain());
    ck_assert(text.find("it owes us 2") != std::string::npos && text.find('\x1b') == text.npos);
}
END_TEST

UNIT_SUITE(monitor, nodes_and_jobs_are_there_at_once_in_24_lines_of_80_characters,
           a_reason_is_cut_at_a_word_and_keeps_its_place_at_80_columns,
           no_reason_is_cut_within_a_number_whatever_the_width,
           a_window_of_200_columns_shows_more_columns_and_whole_reasons,
           states_have_the_colours_of_the_pages, an_array_is_one_row_that_unfolds,
           jobs_and_moves_are_sorted_filtered_and_opened,
           what_is_chosen_stays_in_view_and_a_small_terminal_is_enough,
           once_prints_all_there_is_and_no_control_character,
           peers_are_one_line_and_who_owes_is_told_where_it_is_known);
