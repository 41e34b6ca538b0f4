// SPDX-License-Identifier: GPL-2.0-or-later
// agentd and souk-root talk to each other, and one of them may send any bytes. Reading them gives a
// request or an error of one line, and a request is what its packet says, in every byte. The first
// byte says how many files come with it.
#include <cstdlib>
#include <string>

#include "agentd/root/requests.hpp"
#include "kernel/sys/host/cpu_event.hpp"
#include "tests/fuzz/fuzz.hpp"

namespace {

using namespace souk;
using namespace souk::root;

void asked(std::string_view packet, size_t descriptors) {
    const auto taken = parse_asked(packet, descriptors);
    one_line(taken);
    if (!taken) return;
    REQUIRE(pack(*taken) == packet);
    if (const auto* p = std::get_if<StartProgram>(&*taken)) {
        REQUIRE(p->program == Program::files || (p->words.empty() && descriptors == 1));
        for (const std::string& word : p->words) REQUIRE(word.find('\0') == word.npos);
    }
    if (const auto* c = std::get_if<StartCriu>(&*taken))
        REQUIRE(c->ends <= criu_ends_max && descriptors >= 3U + c->ends);
    if (const auto* c = std::get_if<MakeCapsule>(&*taken))
        REQUIRE(c->user.known && c->user.uid != UINT32_MAX && c->user.gid != UINT32_MAX &&
                c->ticket.size() <= ticket_bytes_max);
    if (const auto* o = std::get_if<OpenFile>(&*taken))
        REQUIRE(o->file >= ProcessFile::written_marks && o->file <= process_file_last &&
                descriptors > 0);
    const bool of_a_process =
        std::holds_alternative<MakePort>(*taken) || std::holds_alternative<ArmPort>(*taken) ||
        std::holds_alternative<ActOnPort>(*taken) || std::holds_alternative<HoldFrames>(*taken) ||
        std::holds_alternative<TellHeld>(*taken) || std::holds_alternative<ReleaseFrames>(*taken) ||
        std::holds_alternative<EndRepair>(*taken) ||
        std::holds_alternative<TakeDescriptor>(*taken) ||
        std::holds_alternative<SettleSockets>(*taken) ||
        std::holds_alternative<OpenDirectory>(*taken) ||
        std::holds_alternative<LookInside>(*taken) || std::holds_alternative<FitRestored>(*taken) ||
        std::holds_alternative<AskWaits>(*taken) || std::holds_alternative<EndProcess>(*taken) ||
        std::holds_alternative<GiveFiles>(*taken) || std::holds_alternative<LearnKernel>(*taken) ||
        std::holds_alternative<AddInputs>(*taken) || std::holds_alternative<AskLoaded>(*taken);
    if (of_a_process) REQUIRE(descriptors == 1);
    if (const auto* p = std::get_if<MakePort>(&*taken))
        REQUIRE(p->plan.name.size() == 14 && p->plan.name.starts_with("sj") && p->plan.address &&
                !(p->plan.found && p->plan.shut));
    if (const auto* h = std::get_if<HoldFrames>(&*taken))
        REQUIRE(h->way == FrameWay::to_job || (h->way == FrameWay::from_job && !h->follows));
    if (const auto* s = std::get_if<SayFrames>(&*taken))
        REQUIRE(descriptors == 2 && s->way != FrameWay::from_job);
    if (const auto* k = std::get_if<KeepPackets>(&*taken))
        REQUIRE(descriptors == (k->some ? 2 : 0));
    if (const auto* l = std::get_if<LookInside>(&*taken))
        for (const int32_t pid : l->pids) REQUIRE(pid > 0);
    if (const auto* f = std::get_if<FitRestored>(&*taken)) {
        for (const auto& [resource, most] : f->limits) REQUIRE(resource < limits_max);
    }
    if (std::holds_alternative<ConnectInit>(*taken)) REQUIRE(descriptors == 2);
    if (const auto* o = std::get_if<OpenOfMachine>(&*taken))
        REQUIRE(descriptors == 0 && o->which >= Device::fuse && o->which <= device_last);
    if (const auto* o = std::get_if<OpenOwnFile>(&*taken))
        REQUIRE(descriptors == 0 &&
                (o->file == OwnFile::configuration || o->file == OwnFile::users));
    if (const auto* e = std::get_if<OpenEvent>(&*taken))
        REQUIRE(descriptors == 0 && e->cpu < souk::cpus_most &&
                (e->every_us == 0 || (e->every_us >= 1'000 && e->every_us <= 1'000'000)));
    if (const auto* p = std::get_if<PutStatus>(&*taken))
        REQUIRE(descriptors == 0 && p->text.size() <= status_bytes_max);
}

void told(std::string_view packet) {
    const auto taken = parse_told(packet);
    one_line(taken);
    if (!taken) return;
    if (const auto* s = std::get_if<Started>(&*taken)) REQUIRE(s->pid > 0);
    if (const auto* r = std::get_if<Refused>(&*taken))
        REQUIRE(r->why.find('\n') == std::string::npos);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::string_view bytes(reinterpret_cast<const char*>(data), size);
    if (bytes.empty()) return 0;
    asked(bytes.substr(1), static_cast<unsigned char>(bytes[0]) % 16);
    told(bytes);
    return 0;
}
