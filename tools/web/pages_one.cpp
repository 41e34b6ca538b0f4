// SPDX-License-Identifier: GPL-2.0-or-later
// The page of a job, and that of a node.
#include "tools/common/job_rows.hpp"
#include "tools/common/job_state.hpp"
#include "tools/web/pages.hpp"
#include "tools/web/pictures.hpp"
#include "tools/web/tables.hpp"

namespace souk::tools::web {
namespace {

Html places_of(const Json& job) {
    Html h;
    for (const Json& place : job.value("places", Json::array()))
        if (place.is_string()) node_link(h.empty() ? h : h.markup(" "), place.get<std::string>());
    return h;
}

Html linked_node(const Json& one, const char* key) {
    Html h;
    if (const std::string name = field(one, key); name != "-") node_link(h, name);
    return h;
}

constexpr std::string_view per_hour = an_hour.text;

Html state_of(const Json& one) {
    Html h;
    return write_state(h, one), h;
}

// Says who holds the job, and how.
std::string held_words(const Json& job) {
    const std::string hold = field(job, "hold");
    if (hold == "-") return hold;
    if (hold == "frozen") return "frozen, by the operator";
    if (hold == "by_user") return "by its user";
    return hold == "stay" ? "where it is, by the operator" : "at " + hold + ", by the operator";
}

std::string what_of(const Json& step) {
    std::string text = field(step, "step");
    const bool moved = text == "moved";
    if (moved && step.contains("form")) text += ", " + field(step, "form");
    if (step.contains("bytes")) text += ", " + bytes(step, "bytes");
    if (step.contains("pause_ms")) text += ", pause " + milliseconds(step, "pause_ms");
    if (step.contains("count")) text += " (the last of " + field(step, "count") + ")";
    text = three_digits(text);
    if (step.contains("why")) text += ": " + field(step, "why");
    return text;
}

Html story_of(const Json& story, const std::string& trouble, double now) {
    static const std::vector<Column> columns = {
        text_column("When", [](const Json& s) { return local_time(s, "at_unix_s"); }),
        text_column("What", what_of),
        {"From", false, [](Html& h, const Json& s) { h.add(linked_node(s, "from")); }},
        {"Node", false, [](Html& h, const Json& s) { h.add(linked_node(s, "node")); }},
        money_column("Price", "price", an_hour),
    };
    Html h;
    h.markup("<h2>Its life</h2>");
    if (!story.is_object()) return h.markup("<p class=\"none\">").text(trouble).markup("</p>"), h;
    const Lanes lanes = lanes_of_story(story, now);
    if (!lanes.names.empty())
        h.add(lanes_picture(lanes, "Where the job waited, ran and lay frozen"));
    h.markup(
        "<p class=\"legend\"><span class=\"wait\">wait</span> <span class=\"run\">run</span> "
        "<span class=\"frozen\">frozen</span> <span class=\"stands\">stands</span></p>");
    return h.add(table("The steps of its life", columns, story.value("steps", Json::array()),
                       "No step is known.")),
           h;
}

// The words of each reason, and its code as programs know it.
void add_reasons(Facts& facts, const Json& why) {
    for (const Json& reason : why.value("reasons", Json::array()))
        facts.add("Why",
                  field(reason, "text") + " [" + field(reason, "code") +
                      (reason.contains("cause_code") ? ": " + field(reason, "cause_code") : "") +
                      "]");
}

}  // namespace

Html job(const Json& one, const Json& why, const Json& story, const std::string& story_trouble,
         double now, const Html& orders) {
    Html h;
    h.markup("<h1>Job ").text(field(one, "id"));
    if (const std::string name = field(one, "name"); name != "-") h.markup(": ").text(name);
    h.markup("</h1>").add(orders);
    Facts facts;
    facts.add("State", state_of(one)).add("User", field(one, "user"));
    if (!one.contains("submitted_unix_s")) {
        h.add(facts.take());
        h.markup(
            "<p class=\"none\">The market tells the rest to the job's own user and to root, and "
            "souk-web asks as neither.</p>");
        return h;
    }
    add_reasons(facts, why);
    if (!why.contains("reasons")) facts.add("Why", field(one, "comment"));
    facts.add("Command", field(one, "command")).add("Where", linked_node(one, "where"));
    facts.add("Goes to", linked_node(one, "going_to")).add("Sent so far", three_digits(sent(one)));
    facts.add("Ran on", places_of(one));
    facts.add("Submitted", local_time(one, "submitted_unix_s"));
    if (one.contains("ended_unix_s")) facts.add("Ended", local_time(one, "ended_unix_s"));
    facts.add("Ran for", three_digits(duration(one, "runtime_s")));
    facts.add("Waited", three_digits(duration(one, "wait_s")));
    facts.add("Bid", with_unit(money_figure(one, one.contains("bid") ? "bid" : "value"), per_hour));
    if (one.contains("bid")) facts.add("Worth", with_unit(money_figure(one, "value"), per_hour));
    facts.add("Price now", with_unit(row_price(one), per_hour));
    // The cost of a job that has ended is exact, as receipts have it.
    if (one.contains("ended_unix_s"))
        facts.add("Cost", field(one, "cost"));
    else
        facts.add("Cost so far", money_figure(one, "cost"));
    if (const std::string budget = money_figure(one, "budget"); budget != "0")
        facts.add("Budget", budget);
    facts.add("Deadline", promise_words(one));
    facts.add("CPUs", field(one, "cpus")).add("Memory", megabytes(one, "memory_mb"));
    facts.add("Moves", field(one, "migrations")).add("Freezes", field(one, "freezes"));
    if (field(one, "failed_moves") != "0") facts.add("Failed moves", field(one, "failed_moves"));
    if (one.value("longest_pause_ms", 0.0) > 0)
        facts.add("Longest pause", three_digits(milliseconds(one, "longest_pause_ms")));
    facts.add("Cannot move", field(one, "cannot_move"))
        .add("Last failed", field(one, "last_failed"));
    facts.add("Address", field(one, "address")).add("Exit status", field(one, "exit"));
    facts.add("Ended because", field(one, "why")).add("Held", held_words(one));
    return h.add(facts.take()).add(story_of(story, story_trouble, now)), h;
}

Html node(const Json& one, const Json& why, const Listed& here, const Listed& before,
          const Fold& fold) {
    Html h;
    h.markup("<h1>Node ").text(field(one, "node")).markup("</h1>");
    Facts facts;
    facts.add("State", state_of(one)).add("Sent so far", three_digits(sent(one)));
    add_reasons(facts, why);
    facts.add("Price", with_unit(node_price(one), per_hour));
    facts.add("Next price", with_unit(node_next_price(one), per_hour));
    facts.add("Reserve", with_unit(money_figure(one, "reserve"), per_hour));
    facts.add("Guests", field(one, "guests")).add("Speed", field(one, "speed"));
    facts.add("CPUs", field(one, "cpus")).add("Memory", megabytes(one, "memory_mb"));
    facts.add("Free", megabytes(one, "free_mb"));
    facts.add("Jobs' load", percent(one, "load_permille"));
    facts.add("Run-queue wait", percent(one, "wait_permille"));
    facts.add("Earned", money_figure(one, "earned"));
    if (one.contains("memory_pressure_permille"))
        facts.add("Memory stalls", percent(one, "memory_pressure_permille"));
    facts.add("Address", field(one, "address")).add("Kernel", field(one, "kernel"));
    facts.add("CRIU", field(one, "criu")).add("Takes no job", field(one, "cannot"));
    facts.add("Restricted", field(one, "restriction"));
    if (one.contains("near_group")) facts.add("Near", near_text(one));
    h.add(facts.take()).markup("<h2>Jobs that run, or have run here</h2>");
    h.add(table("Live jobs that ran on this node", job_columns(fold), here.rows,
                "No live job has run here. A job comes when its bid wins a place on this node."));
    h.markup("<h2>Finished jobs</h2>");
    h.add(table("Finished jobs of this node, the newest first", finished_columns(), before.rows,
                "No job that ran here has ended."));
    if (!before.next.empty())
        h.markup("<p><a href=\"/history?node=")
            .in_address(field(one, "node"))
            .markup("\">All</a></p>");
    return h;
}

}  // namespace souk::tools::web
