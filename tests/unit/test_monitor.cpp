// SPDX-License-Identifier: GPL-2.0-or-later
// mmon's lines, as text: what the market answers and how it is looked at make 24 lines of 80
// characters.
#include "tools/common/monitor.hpp"

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
         "comment": "n2 runs at speed 300, n1 at 100", "image_bytes": 5000000,
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

START_TEST(nodes_are_a_table_in_24_lines_of_80_characters) {
    View view = plain();
    const std::string text = text_of(some(), view);
    const std::string upper =
        "souk lab  nodes 3: 2 on, 1 busy  jobs: 2 run, 1 wait, 0 frozen  greedy_migration\n"
        "a place costs 8  . =@\n"
        "[Nodes 3]  Jobs 3   Moves 1  \n"
        "NODE+ STATE         JOBS LOAD PRICE NEXT RESERVE SPEED CPUS       FREE EARNED\n"
        ">n1    busy             1  98%  12.5   31       2   100    1 400/900 MB   0.25\n"
        "n2    free             0   0%  none    1       1   300    2 2.0/2.0 GB      3\n"
        "n10   off, 3/5 gone    0   0%  none none       1    80    4 6.8/7.8 GB   none\n";
    ck_assert_text(text.substr(0, upper.size()), upper);
    ck_assert(text.ends_with("F1Help F4Filter F5Open F6Sort F7Move F8Freeze F9Cancel F10Quit\n"));
    for (const Line& line : screen(some(), view, 24, 40)) ck_assert_uint_le(line.text.size(), 40);
}
END_TEST

START_TEST(jobs_and_moves_are_sorted_filtered_and_opened) {
    const Seen seen = some();
    View view = plain();
    press("tab", seen, view);
    std::string text = text_of(seen, view, 8);
    ck_assert_text(
        text.substr(text.find("JOB+")),
        "JOB+  USER   STATE  WHERE BID PRICE COST    RUN NAME       WHY\n"
        ">n1.2  ann    run    n1     40  12.5  0.5 12m05s night      -\n"
        "n1.3  bob    wait   -       9     -    -   0.0s xz         outbid; 41 would win\n"
        "n1.10 jürgen moving n1>n2  30     1 none   3.0s ./simulate n2 runs at speed 300,"
        "\nF1Help F4Filter F5Open F6Sort F7Move F8Freeze F9Cancel F10Quit\n");
    press("down", seen, view);
    ck_assert_text(chosen(seen, view), "n1.3");
    for (int i = 0; i < 4; ++i) press(">", seen, view);
    press("I", seen, view);  // the highest bid first
    ck_assert_text(chosen(seen, view), "n1.10");
    view.filter = "win a place";
    press("home", seen, view);
    ck_assert_text(chosen(seen, view), "n1.3");
    press("enter", seen, view);
    ck_assert(text_of(seen, view).find("comment                outbid; 41 would win a place\n") !=
              std::string::npos);
    press("escape", seen, view);
    view.filter.clear();
    press("tab", seen, view);
    text = text_of(seen, view, 8);
    ck_assert_text(
        text.substr(text.find("JOB+"), 150),
        "JOB+  STEP   FROM TO  IMAGE SENT                       EXPECTED WHY\n"
        ">n1.10 moving n1   n2 5.0 MB 2.0 MB of 5.5 MB, 1.0 MB/s 812.3 ms n2 runs at speed\n");
    press("tab", seen, view);
    press("enter", seen, view);
    ck_assert(text_of(seen, view).find("job n1.2               ann, run, pays 12.5\n") !=
              std::string::npos);
    press("h", seen, view);
    ck_assert(text_of(seen, view).find("F9 k       cancel the chosen job\n") != std::string::npos);
}
END_TEST

START_TEST(what_is_chosen_stays_in_view_and_a_small_terminal_is_enough) {
    Seen seen = some();
    seen.nodes = Json::array();
    for (int i = 1; i <= 100; ++i)
        seen.nodes.push_back({{"node", "n" + std::to_string(i)}, {"status", "free"}});
    View view = plain();
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

UNIT_SUITE(monitor, nodes_are_a_table_in_24_lines_of_80_characters,
           jobs_and_moves_are_sorted_filtered_and_opened,
           what_is_chosen_stays_in_view_and_a_small_terminal_is_enough,
           once_prints_all_there_is_and_no_control_character);
