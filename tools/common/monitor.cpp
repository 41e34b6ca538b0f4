// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/common/monitor.hpp"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>

#include "kernel/base/text.hpp"
#include "tools/common/job_rows.hpp"
#include "tools/common/job_state.hpp"
#include "tools/common/peer_rows.hpp"

namespace souk::tools::mmon {
namespace {

struct Column {
    const char* title;
    bool right;
    std::string (*text)(const Json&);
    // A window that is too narrow leaves out the columns with the greatest number first; those with
    // 0 always stay.
    int leave = 0;
    const char* by = nullptr;  // the number that it is sorted by; null: by its text
};

// Says the same as node_state, in a column.
std::string state_of(const Json& n) {
    const int64_t of = n.value("leaving_of", int64_t{0}), left = n.value("leaving", int64_t{0});
    if (of <= 0 || left <= 0) return field(n, "status");
    return field(n, "status") + ", " + std::to_string(std::max<int64_t>(0, of - left)) + "/" +
           std::to_string(of) + " gone";
}

std::string where_to(const Json& row) {
    if (is_group(row)) {
        const size_t nodes = row.value("nodes", size_t{0});
        const Json where = row.value("where", Json::array());
        if (nodes == 0 || where.empty() || !where.front().is_string()) return "-";
        const std::string first = where.front().get<std::string>();
        return nodes == 1 ? first : first + "+" + std::to_string(nodes - 1);
    }
    const std::string to = field(row, "going_to");
    return to == "-" ? field(row, "where") : field(row, "where") + ">" + to;
}

// A group's state is that of its first jobs; the others stand before its reason.
std::string state_of_row(const Json& row) {
    const std::string all = row_states(row);
    return all.substr(0, all.find(','));
}
std::string why_of_row(const Json& row) {
    const Json& job = job_of(row);
    if (!is_group(row)) return field(job, "comment");
    const std::string all = row_states(row);
    const size_t comma = all.find(", ");
    const std::string others = comma == std::string::npos ? "" : all.substr(comma + 2);
    if (field(job, "status") == "run") return others.empty() ? "-" : others;
    return others + (others.empty() ? "" : ": ") + field(job, "comment");
}

std::string run_of(const Json& row) { return three_digits(duration(row, "runtime_s")); }

const std::vector<Column>& columns_of(Panel panel) {
    static const std::vector<Column> nodes = {
        {"NODE", false, [](const Json& n) { return field(n, "node"); }},
        {"STATE", false, state_of},
        {"JOBS", true, [](const Json& n) { return field(n, "guests"); }},
        {"LOAD", true, [](const Json& n) { return percent(n, "load_permille"); }, 1,
         "load_permille"},
        {"PRICE", true, node_price, 0, "current_price"},
        {"NEXT", true, node_next_price, 0, "next_price"},
        {"RESERVE", true, [](const Json& n) { return money_figure(n, "reserve"); }, 3, "reserve"},
        {"SPEED", true, [](const Json& n) { return field(n, "speed"); }, 1},
        {"CPUS", true, [](const Json& n) { return field(n, "cpus"); }, 1},
        {"FREE MEMORY", true, [](const Json& n) { return three_digits(free_memory(n)); }, 2,
         "free_mb"},
        {"EARNED", true, [](const Json& n) { return money_figure(n, "earned"); }, 2, "earned"},
        {"CPU WAIT", true, [](const Json& n) { return percent(n, "wait_permille"); }, 5,
         "wait_permille"},
        {"JOBS HERE", false, [](const Json&) { return std::string(); }, 4},
    };
    static const std::vector<Column> jobs = {
        {"JOB", false, row_title},
        {"USER", false, [](const Json& j) { return field(job_of(j), "user"); }, 4},
        {"STATE", false, state_of_row},
        {"WHERE", false, where_to},
        {"BID", true, [](const Json& j) { return money_figure(job_of(j), "value"); }, 0, "value"},
        {"PRICE", true, row_price, 2, "price"},
        {"COST", true, [](const Json& j) { return money_figure(j, "cost"); }, 6, "cost"},
        {"RUN", true, run_of, 5, "runtime_s"},
        {"CPUS", true, [](const Json& j) { return field(job_of(j), "cpus"); }, 7},
        {"MEMORY", true, [](const Json& j) { return megabytes(job_of(j), "memory_mb"); }, 8,
         "memory_mb"},
        {"MOVES", true, [](const Json& j) { return field(j, "migrations"); }, 9},
        {"NAME", false, row_name, 1},
        {"WHY", false, why_of_row},
    };
    static const std::vector<Column> moves = {
        {"JOB", false, [](const Json& j) { return field(j, "id"); }},
        {"STEP", false, [](const Json& j) { return field(j, "status"); }},
        {"FROM", false, [](const Json& j) { return field(j, "where"); }},
        {"TO", false, [](const Json& j) { return field(j, "going_to"); }},
        {"IMAGE", true, [](const Json& j) { return three_digits(bytes(j, "image_bytes")); }, 2,
         "image_bytes"},
        {"SENT", false, [](const Json& j) { return three_digits(sent(j)); }, 0, "sent_bytes"},
        {"EXPECTED", true,
         [](const Json& j) { return three_digits(milliseconds(j, "forecast_total_ms")); }, 1,
         "forecast_total_ms"},
        {"WHY", false, [](const Json& j) { return field(j, "comment"); }},
    };
    return panel == Panel::nodes ? nodes : panel == Panel::jobs ? jobs : moves;
}

bool is_moving(const Json& job) {
    const std::string s = field(job, "status");
    return s == "moving" || s == "freezing" || s == "thawing" || s == "starting";
}

size_t at(Panel panel) { return static_cast<size_t>(panel); }

size_t characters(const std::string& text) {
    return static_cast<size_t>(
        std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

// Returns at most so many characters, with control characters as blanks.
std::string cut(const std::string& said, size_t columns) {
    std::string text = blank_controls(said);
    size_t seen = 0, i = 0;
    for (; i < text.size(); ++i) {
        if ((text[i] & 0xc0) != 0x80 && seen++ == columns) break;
    }
    text.resize(i);
    return text;
}

// Returns at most so many characters that end with a whole word, and with a mark if there was more:
// half of a number would be another number.
std::string cut_at_word(const std::string& text, size_t columns, bool unicode) {
    if (characters(text) <= columns) return cut(text, columns);
    const std::string mark = unicode ? "\u2026" : "~";
    if (columns <= 1) return columns == 1 ? mark : "";
    std::string part = cut(text, columns - 1);
    const char next = text[part.size()];
    const auto of_number = [](char c) { return (c >= '0' && c <= '9') || c == '.'; };
    const size_t blank = part.find_last_of(' ');
    if (next != ' ' && blank != std::string::npos && blank > 0)
        part.resize(blank);
    else if (of_number(next))
        while (!part.empty() && of_number(part.back())) part.pop_back();
    part.erase(part.find_last_not_of(' ') + 1);
    return part + mark;
}

std::string padded(const std::string& text, size_t width, bool right, bool unicode = true) {
    const size_t has = characters(text);
    if (has >= width) return cut_at_word(text, width, unicode);
    const std::string blanks(width - has, ' ');
    return right ? blanks + text : text + blanks;
}

// Numbers by value ("9" before "10"), other text by letters; n2.9 before n2.10.
bool less(const std::string& a, const std::string& b) {
    size_t i = 0, j = 0;
    const auto digit = [](char c) { return c >= '0' && c <= '9'; };
    while (i < a.size() && j < b.size()) {
        if (digit(a[i]) && digit(b[j])) {
            const double x = std::strtod(a.c_str() + i, nullptr);
            const double y = std::strtod(b.c_str() + j, nullptr);
            const auto whole_a = std::strtoull(a.c_str() + i, nullptr, 10),
                       whole_b = std::strtoull(b.c_str() + j, nullptr, 10);
            if (whole_a != whole_b) return whole_a < whole_b;
            if (i == 0 && j == 0 && x != y) return x < y;
            while (i < a.size() && digit(a[i])) ++i;
            while (j < b.size() && digit(b[j])) ++j;
            continue;
        }
        if (a[i] != b[j]) return a[i] < b[j];
        ++i, ++j;
    }
    return a.size() - i < b.size() - j;
}

struct Row {
    const Json* of;  // null: a group, which `group` is
    std::vector<std::string> cells;
    std::shared_ptr<const FoldedRow> group = nullptr;
    std::string state = {};  // one word
    bool part = false;       // one of the group above

    const Json& row() const { return of ? *of : group->row(); }
};

// Adds the row of the jobs of one panel, if the filter lets it.
void add_row(std::vector<Row>& rows, Row row, Panel panel, const View& view,
             const std::string& here = {}) {
    bool shown = view.filter.empty();
    for (const Column& column : columns_of(panel)) {
        row.cells.push_back(column.text(row.row()));
        if (panel == Panel::nodes && column.leave == 4) row.cells.back() = here;
        shown = shown || row.cells.back().find(view.filter) != std::string::npos;
    }
    if (!shown) return;
    if (row.part) row.cells[0] = "  " + row.cells[0];
    if (row.group)
        row.cells[0] = (view.unfolded.contains(row_id(row.row())) ? "-" : "+") + row.cells[0];
    row.state = panel == Panel::jobs ? row_state(row.row()) : row.cells[1];
    rows.push_back(std::move(row));
}

void sort_rows(std::vector<Row>& rows, Panel panel, const View& view) {
    if (view.sort[at(panel)] == unsorted) return;
    const auto& columns = columns_of(panel);
    const size_t by = std::min(view.sort[at(panel)], columns.size() - 1);
    const bool down = view.down[at(panel)];
    const char* const key = columns[by].by;
    const auto number = [key](const Row& row) {
        const Json& of = job_of(row.row());
        const auto it = of.find(key);
        return it != of.end() && it->is_number() ? it->get<double>() : -1.0;
    };
    const auto before = [&](const Row& a, const Row& b) {
        return key ? number(a) < number(b) : less(a.cells[by], b.cells[by]);
    };
    std::stable_sort(rows.begin(), rows.end(), [&](const Row& a, const Row& b) {
        return down ? before(b, a) : before(a, b);
    });
}

// The jobs that are on each node, by their names.
std::map<std::string, std::string> jobs_here(const Seen& seen) {
    std::map<std::string, std::string> here;
    for (const Json& job : seen.jobs) {
        if (field(job, "status") != "run") continue;
        std::string& text = here[field(job, "where")];
        text += (text.empty() ? "" : " ") + field(job, "id");
    }
    return here;
}

// Jobs with groups as one row each, below a group that is unfolded its jobs. With `open` each job
// stands for itself.
std::vector<Row> job_rows(const Seen& seen, const View& view, bool open) {
    std::vector<Row> rows;
    for (FoldedRow& one : folded_jobs(seen.jobs)) {
        if (one.job) {
            add_row(rows, {one.job, {}}, Panel::jobs, view);
        } else if (open) {
            for (const Json* const job : one.jobs) add_row(rows, {job, {}}, Panel::jobs, view);
        } else {
            auto group = std::make_shared<const FoldedRow>(std::move(one));
            add_row(rows, {nullptr, {}, std::move(group)}, Panel::jobs, view);
        }
    }
    sort_rows(rows, Panel::jobs, view);
    if (open || view.unfolded.empty()) return rows;
    std::vector<Row> all;
    for (Row& row : rows) {
        const auto group = row.group;
        all.push_back(std::move(row));
        if (!group || !view.unfolded.contains(row_id(group->row()))) continue;
        for (const Json* const job : group->jobs)
            add_row(all, {job, {}, nullptr, "", true}, Panel::jobs, view);
    }
    return all;
}

std::vector<Row> rows_of(const Seen& seen, const View& view, Panel panel, bool open = false) {
    if (panel == Panel::jobs) return job_rows(seen, view, open || !view.filter.empty());
    std::vector<Row> rows;
    if (panel == Panel::nodes) {
        auto here = jobs_here(seen);
        for (const Json& node : seen.nodes)
            add_row(rows, {&node, {}}, panel, view, here[field(node, "node")]);
    } else {
        for (const Json& job : seen.jobs)
            if (is_moving(job)) add_row(rows, {&job, {}}, panel, view);
    }
    sort_rows(rows, panel, view);
    return rows;
}

// The columns that a window has room for.
struct Fit {
    std::vector<size_t> columns, widths;
};

// Returns what is widest in each column, and the last one has what is left: enough for a reason, as
// far as there are columns to leave out.
Fit fit(Panel panel, const std::vector<std::string>& titles, const std::vector<Row>& rows,
        size_t from, size_t to, size_t room) {
    constexpr size_t reason_least = 36;
    const auto& columns = columns_of(panel);
    const size_t most = panel == Panel::moves ? 28 : 20;
    Fit fit;
    for (size_t c = 0; c < columns.size(); ++c) {
        size_t width = characters(titles[c]);
        for (size_t r = from; r < to; ++r) width = std::max(width, characters(rows[r].cells[c]));
        fit.columns.push_back(c);
        fit.widths.push_back(c + 1 < columns.size() ? std::min(width, most) : width);
    }
    for (;;) {
        size_t needs = fit.columns.size() - 1;
        for (const size_t width : fit.widths) needs += width;
        if (columns[fit.columns.back()].leave == 0 && fit.widths.back() > reason_least)
            needs -= fit.widths.back() - reason_least;
        size_t least = 0;
        for (size_t i = 0; i < fit.columns.size(); ++i)
            if (columns[fit.columns[i]].leave > columns[fit.columns[least]].leave) least = i;
        if (needs <= room || columns[fit.columns[least]].leave == 0) break;
        fit.columns.erase(fit.columns.begin() + static_cast<ptrdiff_t>(least));
        fit.widths.erase(fit.widths.begin() + static_cast<ptrdiff_t>(least));
    }
    size_t before = fit.columns.size() - 1;
    for (size_t i = 0; i + 1 < fit.widths.size(); ++i) before += fit.widths[i];
    if (before + fit.widths.back() > room) fit.widths.back() = room > before ? room - before : 0;
    return fit;
}

Line line_of(Panel panel, const std::vector<std::string>& cells, const Fit& fit, size_t columns,
             bool unicode, Line::Kind kind, const std::string& state = {}) {
    Line line{"", kind};
    for (size_t i = 0; i < fit.columns.size(); ++i) {
        const size_t c = fit.columns[i];
        if (i > 0) line.text += ' ';
        const std::string shown =
            padded(cells[c], fit.widths[i], columns_of(panel)[c].right, unicode);
        if (std::string_view(columns_of(panel)[c].title) ==
                (panel == Panel::moves ? "STEP" : "STATE") &&
            !state.empty())
            line.paints.push_back({characters(line.text), fit.widths[i], state_colour(state)});
        line.text += shown;
    }
    line.text = cut_at_word(line.text, columns, unicode);
    line.text.erase(line.text.find_last_not_of(' ') + 1);
    return line;
}

std::vector<std::string> titles(const View& view, Panel panel) {
    std::vector<std::string> all;
    for (const Column& column : columns_of(panel)) all.emplace_back(column.title);
    if (const size_t by = view.sort[at(panel)]; by < all.size())
        all[by] += view.down[at(panel)] ? "-" : "+";
    return all;
}

std::vector<double> prices_of(const Seen& seen) {
    std::vector<double> values;
    for (const Json& row : seen.prices) values.push_back(row.value("least", -1.0));
    return values;
}

std::string summary(const Seen& seen) {
    const Json& s = seen.status;
    const Json jobs = s.value("jobs", Json::object());
    size_t on = 0, busy = 0;
    for (const Json& n : seen.nodes) {
        const std::string state = field(n, "status");
        on += state == "busy" || state == "free";
        busy += state == "busy";
    }
    return "souk " + field(s, "hostname") + "  nodes " + std::to_string(seen.nodes.size()) + ": " +
           std::to_string(on) + " on, " + std::to_string(busy) +
           " busy  jobs: " + field(jobs, "run") + " run, " + field(jobs, "wait") + " wait, " +
           field(jobs, "suspend") + " frozen  " + field(s, "solver");
}

std::string price_line(const Seen& seen, const View& view, size_t columns) {
    const auto values = prices_of(seen);
    const bool known = !values.empty() && values.back() >= 0;
    const std::string now = known ? money_figure(seen.prices.back(), "least") : "-";
    const std::string text = "a place costs " + now + "; prices are per CPU-hour; 6 hours: ";
    const size_t left = columns > text.size() ? columns - text.size() : 0;
    if (!view.filter.empty()) return "filter: " + view.filter;
    return text + sparkline(values, std::min<size_t>(left, 120), view.unicode);
}

void write_value(std::vector<std::string>& lines, const std::string& key, const Json& value) {
    if (value.is_null() || (value.is_string() && value.get_ref<const std::string&>().empty()))
        return;
    const Json one = {{"v", value}};
    std::string name = key;
    std::string text = field(one, "v");
    if (value.is_object()) {
        for (const auto& [inner, each] : value.items()) write_value(lines, key + " " + inner, each);
        return;
    }
    const auto ends = [&](const char* end) { return value.is_number() && key.ends_with(end); };
    if (ends("_unix_s"))
        text = local_time(one, "v");
    else if (ends("_ms"))
        text = milliseconds(one, "v");
    else if (ends("_bytes"))
        text = bytes(one, "v");
    else if (ends("_bytes_per_s"))
        text = bytes(one, "v") + "/s";
    else if (ends("_mb"))
        text = megabytes(one, "v");
    else if (ends("_permille"))
        text = percent(one, "v");
    else if (ends("_s"))
        text = duration(one, "v");
    for (const char* unit : {"_unix_s", "_bytes_per_s", "_bytes", "_permille", "_ms", "_mb", "_s"})
        if (ends(unit)) {
            name.resize(name.size() - std::string_view(unit).size());
            break;
        }
    std::replace(name.begin(), name.end(), '_', ' ');
    if (key == "status") text = state_word(text);
    lines.push_back(padded(name, 22, false) + " " + text);
}

const Json* find(const Seen& seen, const std::string& id) {
    for (const Json& n : seen.nodes)
        if (field(n, "node") == id) return &n;
    for (const Json& j : seen.jobs)
        if (field(j, "id") == id) return &j;
    return nullptr;
}

// All of one job or node, and of a node who is there.
std::vector<std::string> detail(const Seen& seen, const std::string& id) {
    const Json* one = find(seen, id);
    if (!one) return {id + " is not there any more"};
    std::vector<std::string> lines;
    for (const auto& [key, value] : one->items()) {
        if (key == "promise")
            lines.push_back(padded("deadline", 22, false) + " " + promise_words(*one));
        else if (!key.starts_with("promise_"))
            write_value(lines, key, value);
    }
    if (!one->contains("node")) return lines;
    for (const Json& j : seen.jobs)
        if (field(j, "where") == id)
            lines.push_back(padded("job " + field(j, "id"), 22, false) + " " + field(j, "user") +
                            ", " + job_state(j) + ", pays " + row_price(j));
    return lines;
}

const std::vector<std::string>& help_lines() {
    static const std::vector<std::string> lines = {
        "F1 h ?     this help",
        "Tab        goes to nodes, jobs or moves",
        "arrows     choose a row; Page Up, Page Down, Home, End",
        "Enter F5   unfolds an array or gang; all of a job or node, and back",
        "F4 \\       show only rows that hold a text",
        "F3 /       the same",
        "F6 > <     sort by the next or the previous column; I turns the order",
        "F7 m       move the chosen job to a node",
        "F8 f       freeze the chosen job",
        "t o r      thaw the chosen job; hold it until it is released; release it",
        "F9 k       cancel the chosen job, or array",
        "states     of a job run, wait, frozen (on disk), stands (stopped in memory),",
        "           starting, moving, freezing, thawing; of a node free, busy, off, unable,",
        "           disconnected, lost",
        "F10 q      leave",
    };
    return lines;
}

// One panel in so many lines, with its titles. Only the panel that has the keys shows a selection.
void add_panel(std::vector<Line>& lines, View& view, Panel panel, const std::vector<Row>& all,
               size_t rows, size_t columns) {
    if (rows == 0) return;
    const size_t p = at(panel), shown = rows - 1;
    if (!all.empty()) view.selected[p] = std::min(view.selected[p], all.size() - 1);
    if (view.selected[p] < view.top[p]) view.top[p] = view.selected[p];
    if (shown > 0 && view.selected[p] >= view.top[p] + shown)
        view.top[p] = view.selected[p] - shown + 1;
    view.top[p] = std::min(view.top[p], all.size() > shown ? all.size() - shown : 0);
    const size_t end = std::min(all.size(), view.top[p] + shown), before = lines.size();
    const auto names = titles(view, panel);
    const Fit has = fit(panel, names, all, view.top[p], end, columns);
    const bool keys = panel == view.panel;
    lines.push_back(line_of(panel, names, has, columns, view.unicode,
                            keys ? Line::Kind::chosen_title : Line::Kind::title));
    for (size_t r = view.top[p]; r < end; ++r)
        lines.push_back(
            line_of(panel, all[r].cells, has, columns, view.unicode,
                    keys && r == view.selected[p] ? Line::Kind::selected : Line::Kind::plain,
                    all[r].state));
    if (all.empty() && shown > 0) {
        const char* none = panel == Panel::nodes  ? "no node; `souk setup node` on a machine joins"
                           : panel == Panel::jobs ? "no live job; `srun -p 40 PROGRAM` submits one"
                                                  : "nothing is on its way";
        lines.push_back({cut(view.filter.empty() ? none : "no row holds that text", columns),
                         Line::Kind::plain});
    }
    lines.resize(before + rows);
}

// How many lines each panel has: what it needs, and where there are too few, the panel with the
// keys has most.
struct Heights {
    size_t nodes = 0, jobs = 0, moves = 0;
};
Heights heights(Panel keys, size_t nodes, size_t jobs, size_t moves, size_t rows) {
    constexpr size_t few = 8;  // too few for all
    if (rows < few)
        return {keys == Panel::nodes ? rows : 0, keys == Panel::jobs ? rows : 0,
                keys == Panel::moves ? rows : 0};
    Heights h;
    if (moves > 0 || keys == Panel::moves)
        h.moves =
            std::min(1 + std::max<size_t>(moves, 1), keys == Panel::moves ? rows / 3 : rows / 5);
    const size_t left = rows - h.moves, jobs_need = 1 + std::max<size_t>(jobs, 1);
    const size_t share = keys == Panel::nodes ? left * 3 / 5 : left * 2 / 5;
    h.nodes = std::min(1 + std::max<size_t>(nodes, 1),
                       std::max(share, left > jobs_need ? left - jobs_need : 0));
    h.jobs = left - h.nodes;
    return h;
}

// All of one job or node in so many lines, in as many columns as there is room for.
void add_detail(std::vector<Line>& lines, const Seen& seen, const View& view, const std::string& id,
                size_t rows, size_t columns) {
    constexpr size_t wide = 66;
    const size_t before = lines.size(), at_once = rows - 1,
                 across = std::max<size_t>(1, columns / wide);
    if (!id.empty()) {
        lines.push_back({cut(id, columns), Line::Kind::title});
        const auto texts = detail(seen, id);
        for (size_t row = 0; row < std::min(at_once, texts.size()); ++row) {
            std::string text;
            for (size_t part = 0; part < across; ++part)
                if (const size_t i = part * at_once + row; i < texts.size())
                    text = padded(text, part * wide, false) +
                           cut_at_word(texts[i], wide - 2, view.unicode);
            lines.push_back({cut_at_word(text, columns, view.unicode), Line::Kind::plain});
        }
    }
    lines.resize(before + rows);
}

std::vector<Line> body(const Seen& seen, View& view, size_t rows, size_t columns) {
    std::vector<Line> lines;
    if (view.help || !view.open.empty()) {
        const auto texts = view.help ? help_lines() : detail(seen, view.open);
        for (size_t i = 0; i < std::min(rows, texts.size()); ++i)
            lines.push_back({cut_at_word(texts[i], columns, view.unicode), Line::Kind::plain});
        return lines;
    }
    const auto nodes = rows_of(seen, view, Panel::nodes), jobs = rows_of(seen, view, Panel::jobs),
               moves = rows_of(seen, view, Panel::moves);
    // Lines that no panel needs show all of the chosen job or node.
    constexpr size_t worth = 8;
    const size_t need = 3 + nodes.size() + jobs.size() + (moves.empty() ? 0 : 1 + moves.size());
    const size_t spare = rows > need + worth ? rows - need : 0;
    const Heights has = heights(view.panel, nodes.size(), jobs.size(), moves.size(), rows - spare);
    add_panel(lines, view, Panel::nodes, nodes, has.nodes, columns);
    add_panel(lines, view, Panel::jobs, jobs, has.jobs, columns);
    add_panel(lines, view, Panel::moves, moves, has.moves, columns);
    const std::string id = chosen_group(seen, view).empty() ? chosen(seen, view) : "";
    if (spare > 0) add_detail(lines, seen, view, id, spare, columns);
    return lines;
}

void sort_by(View& view, int step) {
    const size_t p = at(view.panel), n = columns_of(view.panel).size();
    if (view.sort[p] == unsorted)
        view.sort[p] = step > 0 ? 0 : n - 1;
    else
        view.sort[p] = (view.sort[p] + n + static_cast<size_t>(step + static_cast<int>(n))) % n;
}

}  // namespace

std::string sparkline(const std::vector<double>& values, size_t width, bool unicode) {
    static const char* const blocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    constexpr std::string_view plain = ".:-=+*#@";
    const size_t from = values.size() > width ? values.size() - width : 0;
    double most = 0;
    for (size_t i = from; i < values.size(); ++i) most = std::max(most, values[i]);
    std::string text;
    for (size_t i = from; i < values.size(); ++i) {
        if (values[i] < 0) {
            text += ' ';
            continue;
        }
        const double part = most > 0 ? values[i] / most : 0;
        const size_t level = std::min<size_t>(7, static_cast<size_t>(part * 7.999));
        text += unicode ? std::string(blocks[level]) : std::string(1, plain[level]);
    }
    return text;
}

std::vector<Line> screen(const Seen& seen, View& view, size_t rows, size_t columns) {
    const auto fitting = [&](const std::string& text) {
        return cut_at_word(text, columns, view.unicode);
    };
    std::vector<Line> lines = {{fitting(summary(seen)), Line::Kind::head},
                               {fitting(price_line(seen, view, columns)), Line::Kind::plain}};
    if (const std::string sites = peers_line(seen.peers); !sites.empty())
        lines.push_back({fitting(sites), Line::Kind::plain});
    const size_t fixed = lines.size() + 1;
    for (Line& line : body(seen, view, rows > fixed ? rows - fixed : 0, columns))
        lines.push_back(std::move(line));
    lines.resize(std::max(rows, fixed) - 1);
    const std::string last =
        !view.question.empty()  ? view.question
        : !seen.trouble.empty() ? seen.trouble
        : !view.said.empty()
            ? view.said
            : "F1Help TabPanel F4Filter F5Open F6Sort F7Move F8Freeze F9Cancel F10Quit";
    lines.push_back({fitting(last), Line::Kind::key});
    return lines;
}

std::string once(const Seen& seen, const View& view) {
    std::string text = summary(seen) + "\n" + price_line(seen, view, 120);
    if (const std::string sites = peers_line(seen.peers); !sites.empty()) text += "\n" + sites;
    for (const Panel panel : {Panel::nodes, Panel::jobs, Panel::moves}) {
        const auto rows = rows_of(seen, view, panel, true);
        if (rows.empty() && panel == Panel::moves) continue;
        std::vector<std::string> names;
        for (const Column& column : columns_of(panel)) names.emplace_back(column.title);
        constexpr size_t all = SIZE_MAX / 2;
        const Fit has = fit(panel, names, rows, 0, rows.size(), all);
        const auto add = [&](const std::vector<std::string>& cells) {
            return line_of(panel, cells, has, all, true, Line::Kind::plain).text;
        };
        text += "\n\n" + add(names);
        for (const Row& row : rows) text += "\n" + add(row.cells);
    }
    return text;
}

namespace {

std::optional<Row> selected_row(const Seen& seen, const View& view) {
    auto rows = rows_of(seen, view, view.panel);
    const size_t selected = view.selected[at(view.panel)];
    if (selected >= rows.size()) return std::nullopt;
    return std::move(rows[selected]);
}

}  // namespace

std::string chosen(const Seen& seen, const View& view) {
    if (!view.open.empty()) return view.open;
    const auto row = selected_row(seen, view);
    if (!row) return "";
    return view.panel == Panel::nodes ? field(row->row(), "node") : row_id(row->row());
}

std::string chosen_group(const Seen& seen, const View& view) {
    if (!view.open.empty()) return "";
    const auto row = selected_row(seen, view);
    return row && row->group ? field(row->row(), "kind") : "";
}

void press(const std::string& key, const Seen& seen, View& view) {
    constexpr size_t page = 10;
    size_t& row = view.selected[at(view.panel)];
    const size_t n = rows_of(seen, view, view.panel).size();
    if (key == "h" || key == "?") {
        view.help = !view.help;
    } else if (key == "escape") {
        view.help = false;
        view.open.clear();
    } else if (key == "tab" || key == "right") {
        view.panel = static_cast<Panel>((at(view.panel) + 1) % 3);
        view.open.clear();
    } else if (key == "left") {
        view.panel = static_cast<Panel>((at(view.panel) + 2) % 3);
        view.open.clear();
    } else if (key == "enter") {
        const std::string id = chosen(seen, view);
        if (chosen_group(seen, view).empty())
            view.open = view.open.empty() ? id : "";
        else if (view.unfolded.erase(id) == 0)
            view.unfolded.insert(id);
    } else if (key == ">") {
        sort_by(view, 1);
    } else if (key == "<") {
        sort_by(view, -1);
    } else if (key == "I") {
        view.down[at(view.panel)] = !view.down[at(view.panel)];
    } else if (key == "up") {
        row -= row > 0;
    } else if (key == "page_up") {
        row -= std::min(row, page);
    } else if (key == "home") {
        row = 0;
    } else if (key == "down") {
        row += row + 1 < n;
    } else if (key == "page_down") {
        row = std::min(row + page, n > 0 ? n - 1 : 0);
    } else if (key == "end") {
        row = n > 0 ? n - 1 : 0;
    }
}

}  // namespace souk::tools::mmon
