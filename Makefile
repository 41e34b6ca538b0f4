# SPDX-License-Identifier: GPL-2.0-or-later
# One non-recursive Makefile. Every .cpp of the rooms below goes into one archive; a program is the
# objects of its own directory linked against it, so a new file needs no line here. `make help`
# lists the targets.
# Variables: BUILD (default build), SAN=address|thread (sanitizers, in a build directory of their
# own), V=1 (show whole commands in place of one short line each).

SAN       ?=
BUILD     ?= build$(if $(SAN),-$(SAN))
CXX       ?= g++
CLANG     ?= clang
BPFTOOL   ?= $(firstword $(wildcard /usr/sbin/bpftool) bpftool)
PYTHON    ?= /usr/bin/python3
CRIU_ROOT ?= /opt/souk/criu

ROOMS     := kernel/base $(addprefix kernel/sys/,loop process net store host) \
             kernel/trust kernel/wire market/core market/wire market/store market/sim checkpoint \
             agentd/core agentd/wire agentd/store agentd/files agentd/handshake agentd/inspect \
             agentd/who agentd/root agentd/cell bpf tools/common
# Rooms that one program and the tests need: archives of their own, so that the others do not wait.
SIDE_ROOMS := market/sim tools/web
# program=directory of its sources
PROGRAMS  := $(foreach p,agentd=agentd/daemon marketd=market/daemon souk-ask=market/ask \
               souk-init=agentd/init \
               souk-files=agentd/files/program souk-handshake=agentd/handshake/program \
               souk-inspect=agentd/inspect/program souk-root=agentd/root/program \
               $(foreach t,$(filter-out common,$(notdir $(wildcard tools/*))),$(t)=tools/$(t)), \
               $(if $(wildcard $(lastword $(subst =, ,$(p)))/main.cpp),$(p)))
PROG_NAME  = $(firstword $(subst =, ,$(1)))
PROG_DIR   = $(lastword $(subst =, ,$(1)))
PROG_OBJS  = $(call room_objects,$(call PROG_DIR,$(1))) $(call main_object,$(call PROG_DIR,$(1)))
# $(call say,WHAT,NAME) opens a recipe line: says in short what is made, or leaves it to make to
# show the command. `make` counts the steps beforehand (STEPS; a compilation counts as eight), so
# that each line says how far the build is, and how long the rest takes at the speed so far.
say        = $(if $(filter-out 0,$(V)),,@scripts/progress $(words $(BEGUN)) $(or $(STEPS),0) \
               $(or $(STARTED),0) $(1) $(2);$(eval BEGUN += $(if $(filter CXX FUZZ,$(1)),x x x x \
               x x x x,x)))
counted    = $(MAKE) --no-print-directory $(PARALLEL) $(1) STARTED=$$(date +%s) \
               STEPS=$$($(MAKE) -n $(1) 2>/dev/null | \
               awk '/^scripts.progress/ { n += /0 (CXX|FUZZ) / ? 8 : 1 } \
               END { print n + 0 }')
hash := \#
define newline


endef

# Files of a directory are compiled sixteen at a time, as one unit: headers are read once for all of
# them. When six files or more begin with the same word (home.cpp, home_move.cpp; test_home.cpp of
# the tests), they have units of their own. UNIT_MEMBERS.DIR/WORDn holds the files of a unit; a
# main.cpp is alone, so that tests can leave it out. A file that has changed since BUILD/unity/since
# was written is compiled alone until `make clean`, so that an edit costs one file; when more than
# 24 have changed (a merge, a branch), all go back to their units.
# $(1): NAME of unit_objects. What headers of tests bring in would meet in more files.
UNIT_SIZE   = $(if $(filter tests/unit,$(1)),8,16)
SINCE      := $(BUILD)/unity/since
ALONE      := $(if $(wildcard $(SINCE)),$(patsubst ./%,%,$(shell find $(wildcard agentd bpf \
                checkpoint kernel market tools tests) -name '*.cpp' -newer $(SINCE))))
ifneq ($(wordlist 25,25,$(ALONE)),)
ALONE      :=
endif
$(if $(ALONE),,$(shell mkdir -p $(BUILD)/unity && touch $(SINCE)))
words_of    = $(sort $(subst test-,test_,$(foreach f,$(1),$(firstword $(subst _, ,$(patsubst \
                test_%,test-%,$(basename $(notdir $(f)))))))))
files_of    = $(filter %/$(1).cpp,$(2)) $(foreach f,$(2),$(if $(findstring /$(1)_,$(f)),$(f)))
# $(call cut_unit,NAME,WORD,FILES): the next unit of these files, then the rest.
cut_unit    = $(if $(3),$(eval UNITS.$(1) += $(1)/$(2)$(words x $(UNITS.$(1))))$(eval \
                UNIT_MEMBERS.$(lastword $(UNITS.$(1))) := $(wordlist 1,$(UNIT_SIZE),$(3)))$(call \
                cut_unit,$(1),$(2),$(wordlist $(words x $(wordlist \
                1,$(UNIT_SIZE),$(3))),9999,$(3))))
many        = $(foreach w,$(call words_of,$(1)),$(if $(word 6,$(call files_of,$(w),$(1))),$(w)))
cut_units   = $(foreach w,$(call many,$(2)),$(call cut_unit,$(1),$(w),$(sort $(call \
                files_of,$(w),$(2)))))$(call cut_rest,$(1),$(filter-out $(foreach w,$(call \
                many,$(2)),$(call files_of,$(w),$(2))),$(2)))
cut_rest    = $(call cut_unit,$(1),test,$(foreach f,$(2),$(if $(findstring \
                /test_,$(f)),$(f))))$(call cut_unit,$(1),unit,$(foreach f,$(2),$(if $(findstring \
                /test_,$(f)),,$(f))))
# $(call unit_objects,NAME,FILES,PREFIX): the objects of these files, below BUILD/obj/PREFIX; their
# units are called NAME/WORDn.
unit_objects = $(if $(filter undefined,$(origin UNITS.$(1))),$(eval UNITS.$(1) :=)$(call \
                cut_units,$(1),$(sort $(2))))$(foreach u,$(UNITS.$(1)),$(if $(filter-out \
                $(ALONE),$(UNIT_MEMBERS.$(u))),$(BUILD)/obj/$(u).o) $(patsubst \
                %.cpp,$(BUILD)/obj/$(3)%.o,$(filter $(ALONE),$(UNIT_MEMBERS.$(u)))))
# A directory has objects of its room, and that of its main.cpp.
room_objects = $(call unit_objects,$(1),$(filter-out %/main.cpp,$(wildcard $(1)/*.cpp)))
main_object  = $(patsubst %.cpp,$(BUILD)/obj/%.o,$(wildcard $(1)/main.cpp))

SANFLAGS_address := -fsanitize=address -fsanitize=undefined -fno-sanitize-recover=all
SANFLAGS_thread  := -fsanitize=thread
SANFLAGS  := $(if $(SAN),$(SANFLAGS_$(SAN)) -fno-omit-frame-pointer)
# A file that others are compiled with is no header: what it defines unnamed stays its own. What g++
# 12 says of members of a std::variant that may not be initialized is not so.
WARN      := -Wall -Wextra -Wshadow -Werror -Wno-subobject-linkage -Wno-maybe-uninitialized
CPPFLAGS  += -I. -I$(BUILD)/gen -D_GNU_SOURCE -DSOUK_CRIU_ROOT='"$(CRIU_ROOT)"'
OPTIMIZE  := $(if $(SAN),-O1,-O2) -g1
CXXFLAGS  ?= $(OPTIMIZE)
# Rooms that carry out what the cores decide wait for the kernel and for others most of their time:
# small code takes up to a quarter less time to compile there, and up to a third less room.
SMALL     := $(if $(SAN),,$(addprefix $(BUILD)/obj/,$(patsubst %,%/%,$(filter-out \
               tools/marketsim tools/solver tools/testload,$(wildcard tools/*)) \
               $(addprefix agentd/,cell daemon handshake inspect root wire who) \
               $(addprefix market/,daemon store wire))))
CXXFLAGS  += -std=c++20 -fno-plt -fstack-protector-strong $(WARN) $(SANFLAGS) \
             -ffunction-sections -fdata-sections -fPIC -fvisibility=hidden
COMPILE    = $(CXX) $(CPPFLAGS) $(CXXFLAGS) $(if $(filter $(SMALL),$@),-Os) -MMD -MP -c -o $@
CFLAGS    ?= $(OPTIMIZE)
CFLAGS    += -std=gnu11 -Wall -fPIC -fvisibility=hidden $(SANFLAGS)
LDFLAGS   += -Wl,--as-needed $(SANFLAGS) \
             $(if $(SAN),,-Wl,--gc-sections -static-libstdc++ -static-libgcc)
# The archives that a program may need; --as-needed and static archives keep each start-up short.
LDLIBS    += -lbpf -luring -lprotobuf-c -lsqlite3 -lsystemd -lmnl -lmount -lseccomp -lxxhash -lz \
             -lssl -lcrypto -lprometheus-cpp-core -lresolv
# The simulators print with fmt.
LDLIBS_tests  := $(LDLIBS) -lfmt

# CXX=aarch64-linux-gnu-g++ CC=aarch64-linux-gnu-gcc builds for arm64 elsewhere.
TARGET    := $(firstword $(subst -, ,$(shell $(CXX) -dumpmachine 2>/dev/null)))
CROSS     := $(filter-out $(shell uname -m),$(TARGET))
BPF_ARCH  := $(patsubst aarch64,arm64,$(patsubst x86_64,x86,$(TARGET)))
# The compiler driver that has musl, for souk-init. Without one, souk-init is built with the
# machine's own C library.
MUSL      := $(if $(SAN)$(CROSS),,$(shell command -v musl-gcc))
GEN_SRCS  := $(patsubst %.proto,$(BUILD)/gen/%.pb-c.c,$(wildcard $(addsuffix /*.proto,$(ROOMS)))) \
             $(if $(wildcard checkpoint/*.cpp),$(BUILD)/gen/checkpoint/rpc.pb-c.c)
SKELS     := $(patsubst %.bpf.c,$(BUILD)/gen/%.skel.h,$(wildcard $(addsuffix /*.bpf.c,$(ROOMS))))
WEB_FILES := $(patsubst %,$(BUILD)/gen/tools/web/%.inc,style.css page.js icon.svg)
GEN_HDRS  := $(GEN_SRCS:.c=.h) $(SKELS) $(BUILD)/gen/version.inc \
             $(BUILD)/gen/checkpoint/criu_preload.so.h $(WEB_FILES)
LIB_OBJS  := $(foreach r,$(ROOMS),$(call room_objects,$(r))) \
             $(GEN_SRCS:$(BUILD)/gen/%.c=$(BUILD)/obj/gen/%.o)
LIB       := $(BUILD)/libsouk.a
SIDE_LIBS := $(foreach r,$(SIDE_ROOMS),$(BUILD)/lib$(subst /,-,$(r)).a)
BINS      := $(foreach p,$(PROGRAMS),$(BUILD)/bin/$(call PROG_NAME,$(p)))
SIM       := $(BUILD)/bin/clustersim
SIM_ROOM  := $(call unit_objects,tests/sim,$(filter-out tests/sim/test_%,$(wildcard \
               tests/sim/*.cpp)))
SIM_OBJS  := $(SIM_ROOM) $(call main_object,tests/sim/clustersim)

# agentd's effects are tested one by one, its main is not.
UNIT_OBJS := $(call unit_objects,tests/unit,$(wildcard tests/unit/*.cpp tests/sim/test_*.cpp)) \
             $(SIM_ROOM) $(call room_objects,agentd/daemon)
UNIT      := $(BUILD)/tests/unit
# Fuzz targets: clang's libFuzzer with ASan and UBSan. Which files they reach is looked up when they
# are built; what they call beyond that comes from the plain archives. Five targets run the market,
# whose optimization takes as long as all the rest: it is not optimized.
FUZZERS   := $(patsubst tests/fuzz/%.cpp,$(BUILD)/fuzz/%,$(wildcard tests/fuzz/*.cpp))
FUZZ_FILES := $(if $(filter fuzzers check-fuzz $(BUILD)/fuzz/%,$(MAKECMDGOALS)),$(shell \
               scripts/fuzz-sources))
FUZZ_OBJS := $(foreach r,$(patsubst %/,%,$(sort $(dir $(FUZZ_FILES)))),$(call \
               unit_objects,fuzz/$(r),$(filter $(wildcard $(r)/*.cpp),$(FUZZ_FILES)),fuzz/))
FUZZ_FLAGS := -std=c++20 -O1 -g1 -fPIC -fvisibility=hidden -ffunction-sections -fdata-sections \
              -Wno-deprecated -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all
BENCH_SRCS := $(wildcard tests/bench/*.cpp)
STUDY     := $(BUILD)/bin/study
STUDY_OBJS := $(patsubst %.cpp,$(BUILD)/obj/%.o,$(wildcard tests/study/*.cpp))
BENCHES   := $(BENCH_SRCS:tests/bench/%.cpp=$(BUILD)/bench/%)

# Job logs in the Standard Workload Format, for make study.
TRACES    ?= /usr/share/souk/traces

# A build uses all processors, unless -j says otherwise.
JOBS      ?= $(shell nproc)
PARALLEL   = $(if $(filter -j%,$(MAKEFLAGS)),,-j$(JOBS))

.DEFAULT_GOAL := all
.PHONY: FORCE all bins fuzzers deps test-deps help check unsteady nightly check-unit \
        check-layers check-style check-tools check-web check-cluster check-fuzz check-upgrade \
        check-vm check-zdtm check-programs chaos check-files check-mpi check-mpich sim fault-table \
        test demo authority-table what-moves attack check-deb check-fresh check-fresh-vm \
        configuration-reference deb deb-for install manuals repo bench bench-build bench-compare \
        bench-sample mutants study tidy clean
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

all: deps            ## build everything into build/bin (installs what is missing first)
	@$(call counted,bins)

bins: $(BINS) $(SIM) $(BUILD)/bin/souk-audit $(BUILD)/bin/souk-demo

deps:                ## install what a fresh machine lacks: packages, and a CRIU that works here
	@scripts/deps

test-deps:           ## also what the tests and the benchmarks need
	@scripts/deps tests

help:                ## list the targets
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1\t/p' Makefile | expand -t 16

check: test-deps all           ## build, then pass the tests (not chaos, check-vm, all of zdtm)
	@$(PYTHON) scripts/check $(BUILD) $(if $(RECORD),--record)

# BASE: a commit. RUNS: how often (20). LOAD: loops that keep the processors busy beside it (4).
unsteady: test-deps  ## T=NAME, or the tests that differ from BASE: RUNS times beside a load
	@$(PYTHON) scripts/check/unsteady.py $(BUILD) $(T) --runs $(or $(RUNS),20) \
	  --load $(or $(LOAD),4) $(if $(BASE),--base $(BASE))

nightly: test-deps all         ## the long tests, one after another: NIGHTLY="fuzz chaos"; a table
	@$(PYTHON) scripts/check/nightly.py $(BUILD) $(NIGHTLY)

check-unit: $(UNIT) $(filter %/souk-init,$(BINS))  ## the unit tests alone
	$(UNIT)

check-layers:        ## no include that points up, no effect in a core
	@scripts/check-layers

check-style:         ## formatting, lengths, names, words, commits, linters; clang-tidy on changes
	@scripts/check-style $(BUILD)

check-cluster: bins  ## real daemons in network namespaces (root)
	SOUK_BIN=$(abspath $(BUILD)/bin) $(PYTHON) -m pytest -q tests/cluster

check-tools: bins    ## the tools against an agentd of the tests' own
	SOUK_BIN=$(abspath $(BUILD)/bin) $(PYTHON) -m pytest -q tests/tools

check-fuzz:          ## each parser under libFuzzer for FUZZ_SECONDS (10)
	@CHECK_PARTS=fuzz $(PYTHON) scripts/check $(BUILD)

# FROM: the first seed (1). BOOKED=1: the real market gives the orders, and promises deadlines.
sim: $(SIM)          ## SEEDS (2000) clusters on virtual time; SEED=N TRACE=1: one's story
	@$(SIM) $(if $(BOOKED),--booked )$(if $(SEED),--seed $(SEED) $(if $(TRACE),--trace),\
	  --seeds $(or $(SEEDS),2000) --from $(or $(FROM),1))

# Run this after a change of tests/sim/fault_table.
fault-table: $(SIM)  ## write the table of faults in docs/move.md anew from the simulator's test
	@scripts/fault-table $(BUILD)/bin

what-moves:          ## write docs/what-moves.md anew from the table of tests/moves
	@$(PYTHON) scripts/what-moves

authority-table:     ## write docs/security.md's table and docs/data/attempts.csv anew from the code
	@$(PYTHON) scripts/authority-table

attack: bins         ## attacks on a market of real daemons, by role, and what each got (root)
	@SOUK_BIN=$(abspath $(BUILD)/bin) $(PYTHON) tests/attack/show.py $(ATTACK_OPTIONS)

test:                ## T=NAME: a unit suite or test, a file of tests/tools or tests/cluster, a test
	@scripts/test $(BUILD) "$(T)"

# Dead daemons and CRIUs, cut links, no room, damaged images.
chaos: bins          ## FAULTS (20; 200 each night) moves with a fault in each (root)
	@SOUK_BIN=$(abspath $(BUILD)/bin) SOUK_FAULTS=$(or $(FAULTS),20) \
	  $(PYTHON) -m pytest -q -s -rfEs tests/cluster/test_faults.py

check-vm: test-deps all        ## two stock Debian kernels, emulated by QEMU
	@$(MAKE) --no-print-directory $(PARALLEL) $(UNIT)
	@scripts/check-vm $(BUILD)

check-web: bins      ## souk-web in headless Chromium: accessibility, phone width, keyboard (root)
	@scripts/check-web $(BUILD)

# OLD: a revision, or a directory of programs (origin/main).
check-upgrade: test-deps all   ## two versions in one market, under jobs (root)
	@scripts/check-upgrade $(BUILD) "$(or $(OLD),origin/main)"

check-files: test-deps all     ## others' suites of file systems, as jobs; FILES="options" (root)
	@SOUK_BIN=$(CURDIR)/$(BUILD)/bin /usr/bin/python3 tests/peers/files.py $(FILES)

check-mpi: test-deps all       ## programs of MPI as gangs, moved and frozen; MPI="options" (root)
	@scripts/check-mpi $(BUILD) $(MPI)

check-mpich: test-deps all     ## MPICH's own tests as gangs that move; MPICH="options" (root)
	@scripts/check-mpich $(BUILD) $(MPICH)

check-programs: test-deps all  ## real programs, moved and frozen 20 times; NAMES="go node" (root)
	@SOUK_BIN=$(CURDIR)/$(BUILD)/bin $(PYTHON) tests/moves/programs.py $(NAMES)

check-zdtm: test-deps all      ## CRIU's own tests as jobs that move; ZDTM="options" (root)
	@scripts/check-zdtm $(BUILD) $(ZDTM)

# Simulators, monitor and pages are not built for it.
DEMO_BINS := $(addprefix $(BUILD)/bin/,agentd marketd souk souk-ask souk-root souk-init \
               souk-files souk-handshake souk-inspect srun marketctl pvdctl testload)

demo: deps           ## the story: a market of three machines on this host
	@$(call counted,$(DEMO_BINS))
	@$(PYTHON) scripts/demo $(BUILD)/bin

fuzzers: $(FUZZERS)

# Man pages, completion and sample configuration, made from what the programs say of themselves.
MANUALS   := $(BUILD)/manuals/made
manuals: $(MANUALS)  ## man pages, completion of bash and zsh, sample configuration
$(MANUALS): $(wildcard scripts/manuals/*.py docs/man/*.txt) $(BINS) $(SIM) $(BUILD)/bin/souk-audit
	$(call say,MAN,$(@D))$(PYTHON) scripts/manuals $(BUILD)/bin $(@D)
	@touch $@

configuration-reference: bins  ## write docs/configuration.md anew from the daemons' tables
	@$(PYTHON) scripts/manuals $(BUILD)/bin --reference > docs/configuration.md

# PREFIX (/usr/local), DESTDIR: below which root. The programs find each other from where they are.
install: bins manuals  ## everything below DESTDIR and PREFIX
	@scripts/install $(BUILD) "$(DESTDIR)" "$(or $(PREFIX),/usr/local)"

deb: bins manuals    ## Debian packages of what was built, into BUILD/deb
	@scripts/deb $(BUILD)

# RELEASE: trixie; ARCH: this machine's.
deb-for: manuals     ## packages for another RELEASE or ARCH (arm64), in a root of it (root)
	@scripts/deb-for $(BUILD) "$(or $(RELEASE),trixie)" $(ARCH)

check-deb: deb       ## the packages in a fresh root: install, upgrade, remove, purge (root)
	@scripts/check-deb $(BUILD)

check-fresh: deb     ## three fresh machines from the packages: a market, reboots, upgrades (root)
	@scripts/check-fresh $(BUILD)

check-fresh-vm: deb  ## the same with three machines emulated by QEMU, a kernel each (root)
	@scripts/check-fresh $(BUILD) vm

# FROM: a folder of packages (BUILD/deb).
repo:                ## an apt repository from a folder of packages, into REPO (BUILD/repo)
	@scripts/repo "$(or $(FROM),$(BUILD)/deb)" "$(or $(REPO),$(BUILD)/repo)"

bench-build: bins $(BENCHES) $(BUILD)/bench/count_sync.so

bench: test-deps all           ## every figure, with its peer: table and JSON
	@$(MAKE) --no-print-directory bench-build
	@scripts/bench $(BUILD)

bench-sample: bench-build  ## small runs of some, of a minute; fails only where a part crashes
	@scripts/bench $(BUILD) --sample

# OLD, NEW: directories of programs, or git revisions, which are built first. ROUNDS: turns.
bench-compare:       ## what is slower or faster in NEW (this build) than in OLD (origin/main)
	@$(if $(NEW),mkdir -p $(BUILD),$(MAKE) --no-print-directory bench-build)
	@scripts/bench $(BUILD) --compare "$(or $(OLD),origin/main)" "$(or $(NEW),$(BUILD)/bin)" \
	  --rounds $(or $(ROUNDS),7)

# SEED: which ones are drawn (1). ONLY: an expression for the files.
mutants: all         ## N (40) small changes of the pure code; which of them no test notices
	@$(MAKE) --no-print-directory $(PARALLEL) $(UNIT)
	@scripts/mutants $(BUILD) -n $(or $(N),40) --seed $(or $(SEED),1) $(if $(ONLY),--only '$(ONLY)')

study: $(STUDY)      ## STUDIES (all) of the market, on the logs in TRACES: tables and JSON
	@mkdir -p $(BUILD)/study
	@$(STUDY) --traces $(TRACES) --out $(BUILD)/study $(STUDIES)

tidy: $(GEN_HDRS)    ## clang-tidy over the tree
	@scripts/tidy $(BUILD)

clean:               ## remove what make built here
	rm -rf $(BUILD)

define program
$(BUILD)/bin/$(call PROG_NAME,$(1)): $(call PROG_OBJS,$(1)) $(addprefix \
    $(BUILD)/,$(SIDE_$(call PROG_NAME,$(1)))) $(LIB)
	@mkdir -p $$(@D)
	$$(call say,LD,$$@)$$(CXX) $$(LDFLAGS) $$(LDFLAGS_$(call PROG_NAME,$(1))) -o $$@ $$^ \
	  $$(or $$(if $(SAN),,$$(LDLIBS_$(call PROG_NAME,$(1)))),$$(LDLIBS_all))
endef
SIDE_marketsim := libmarket-sim.a libtools-web.a
SIDE_souk-web  := libtools-web.a
$(foreach p,$(if $(MUSL),$(filter-out souk-init=%,$(PROGRAMS)),$(PROGRAMS)), \
  $(eval $(call program,$(p))))
# PID 1 of a capsule: one small static program, so that a job starts fast and needs nothing of the
# job's file system. With musl, where it is there: glibc asks the processor what it can do first,
# which costs each job 0.3 ms in a virtual machine.
LDFLAGS_souk-init := $(if $(SAN),,-static -Wl,--gc-sections)
LDLIBS_souk-init  := $(if $(SAN),,-lc)
ifneq ($(MUSL),)
# souk-init's own files, and those beside the headers that it includes.
INIT_SRCS     := $(sort $(wildcard agentd/init/*.cpp $(patsubst %.hpp,%.cpp,$(shell \
                   sed -n 's/^.include "\(.*\.hpp\)"/\1/p' agentd/init/*.[ch]pp))))
INIT_OBJS     := $(INIT_SRCS:%.cpp=$(BUILD)/obj-init/%.o)
INIT_CPPFLAGS := -nostdinc -isystem /usr/include/$(subst gnu,musl,$(shell gcc -dumpmachine)) \
                 -isystem $(shell gcc -print-file-name=include) \
                 -idirafter /usr/include -idirafter /usr/include/$(shell gcc -dumpmachine)
$(BUILD)/bin/souk-init: $(INIT_OBJS)
	@mkdir -p $(@D)
	$(call say,LD,$@)$(MUSL) $(LDFLAGS_souk-init) -o $@ $^

$(BUILD)/obj-init/%.o: %.cpp | $(GEN_HDRS)
	@mkdir -p $(@D)
	$(call say,CXX,$<)$(CXX) $(CPPFLAGS) $(INIT_CPPFLAGS) $(CXXFLAGS) -fno-exceptions -fno-rtti \
	  -fno-threadsafe-statics -MMD -MP -c -o $@ $<
endif
# srun, testload and marketctl are started for every job or order: static, they come up in half the
# time. The linker's warnings say that they need this machine's C library to look up names, which
# they have.
STATIC            := $(if $(SAN),,-static -Wl,--no-warnings)
LDFLAGS_srun      := $(STATIC)
LDLIBS_srun       := -lprotobuf-c
LDFLAGS_testload  := $(STATIC)
LDLIBS_testload   := -lxxhash
LDFLAGS_marketctl := $(STATIC)
# OpenSSL's archive needs these libraries from version 3.4 on. They are linked where they are
# installed.
CRYPTO_NEEDS      := $(foreach l,zstd z,$(if $(findstring /,$(shell $(CXX) \
                       -print-file-name=lib$(l).a)),-l$(l)))
LDLIBS_marketctl  := -lprotobuf-c -luring -lssl -lcrypto $(CRYPTO_NEEDS)
LDLIBS_mmon       := -lprotobuf-c -lncursesw
# Each program is linked with the libraries that it calls, and with no others. The unused part of a
# unit, which the linker throws away, names more of them, and each library that a program has costs
# time at its start and memory.
LDLIBS_agentd     := $(LDLIBS)
LDLIBS_marketd    := -luring -lprotobuf-c -lsqlite3 -lsystemd -lmount -lssl -lcrypto \
                     -lprometheus-cpp-core
LDLIBS_souk       := -lbpf -luring -lprotobuf-c -lsqlite3 -lmount -lssl -lcrypto -lresolv
LDLIBS_souk-root  := -lbpf -luring -lmnl -lmount -lseccomp -lcrypto
LDLIBS_souk-files := -luring -lmount -lcrypto
LDLIBS_souk-handshake := -luring -lprotobuf-c -lseccomp -lssl -lcrypto
LDLIBS_souk-inspect := -lseccomp
LDLIBS_pvdctl     := -luring -lprotobuf-c -lssl -lcrypto
LDLIBS_marketsim  := -lxxhash -lz -lfmt -lcrypto
LDLIBS_solver     := -lfmt
LDLIBS_souk-exec  := -luring -lprotobuf-c -lssl -lcrypto
LDLIBS_souk-ledger := -lsqlite3 -lprotobuf-c -lcrypto
# With sanitizers the linker throws nothing away, so a program needs the libraries of whole units.
LDLIBS_all        := $(LDLIBS_tests) -lncursesw -lcpp-httplib -lpthread
LDLIBS_souk-web   := -lprotobuf-c -luring -lcpp-httplib -lssl -lcrypto -lsystemd -lpthread

include tools/libsouk/rules.mk

# souk-audit is Python in one file, so that a user can take it along.
AUDIT_SRCS := $(wildcard tools/souk-audit/*.py)
$(BUILD)/bin/souk-audit: $(AUDIT_SRCS) $(BUILD)/gen/version.inc
	@mkdir -p $(@D) && rm -rf $(BUILD)/gen/souk-audit && mkdir -p $(BUILD)/gen/souk-audit
	@cp $(AUDIT_SRCS) $(BUILD)/gen/souk-audit
	@echo 'VERSION = "$(VERSION_TEXT)"' > $(BUILD)/gen/souk-audit/version.py
	$(call say,ZIP,$@)$(PYTHON) -m zipapp -c -p /usr/bin/python3 -o $@ $(BUILD)/gen/souk-audit
	@chmod 755 $@

# The story, which `souk demo` starts.
$(BUILD)/bin/souk-demo: scripts/demo
	@mkdir -p $(@D)
	@install -m 755 $< $@

define archive
	@mkdir -p $(@D)
	@rm -f $@
	$(call say,AR,$@)ar rcs $@ $^
endef
$(LIB): $(LIB_OBJS)
	$(archive)
$(foreach r,$(SIDE_ROOMS),$(eval $(BUILD)/lib$(subst /,-,$(r)).a: $(call room_objects,$(r))))
$(SIDE_LIBS):
	$(archive)

$(UNIT): $(UNIT_OBJS) $(SIDE_LIBS) $(LIB)
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CXX) $(LDFLAGS) -o $@ $^ $(LDLIBS_tests) \
	  $(shell pkg-config --libs check 2>/dev/null)

$(SIM): $(SIM_OBJS) $(BUILD)/libmarket-sim.a $(LIB)
$(STUDY): $(STUDY_OBJS) $(BUILD)/libmarket-sim.a $(LIB)
$(BUILD)/bench/%: $(BUILD)/obj/tests/bench/%.o $(SIDE_LIBS) $(LIB)
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CXX) $(LDFLAGS) -o $@ $^ $(LDLIBS_tests)
$(SIM) $(STUDY):
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CXX) $(LDFLAGS) -o $@ $^ $(LDLIBS_tests)

$(BUILD)/bench/%.so: tests/bench/%.c
	@mkdir -p $(@D)
	$(call say,CC,$<)$(CC) -std=gnu11 -O2 -Wall -Werror -shared -fPIC -D_GNU_SOURCE -o $@ $<

$(BUILD)/libfuzz.a: $(FUZZ_OBJS)
	$(archive)
$(FUZZERS): $(BUILD)/fuzz/%: $(BUILD)/obj/fuzz/tests/fuzz/%.o $(BUILD)/libfuzz.a $(SIDE_LIBS) $(LIB)
	@mkdir -p $(@D)
	$(call say,LD,$@)clang++ $(FUZZ_FLAGS) -Wl,--gc-sections -Wl,--allow-multiple-definition \
	  -o $@ $^ $(LDLIBS_tests)
define compile_fuzz
	@mkdir -p $(@D)
	$(call say,FUZZ,$<)clang++ $(FUZZ_FLAGS) $(CPPFLAGS) \
	  $(if $(filter $(BUILD)/obj/fuzz/market/%,$@),-O0) -MMD -MP -c -o $@ $<
endef
$(BUILD)/obj/fuzz/%.o: $(BUILD)/unity/fuzz/%.cpp | $(GEN_HDRS)
	$(compile_fuzz)
$(BUILD)/obj/fuzz/%.o: %.cpp | $(GEN_HDRS)
	$(compile_fuzz)

$(BUILD)/obj/%.o: %.cpp | $(GEN_HDRS)
	@mkdir -p $(@D)
	$(call say,CXX,$<)$(COMPILE) $<

# Written as make starts, where the list of files is not the one of before.
UNITS      := $(foreach v,$(filter UNITS.%,$(.VARIABLES)),$($(v)))
unity_text  = $(foreach f,$(filter-out $(ALONE),$(UNIT_MEMBERS.$(1))),$(hash)include \
                "$(f)"$(newline))
write_unity = $(if $(call same,$(file <$(BUILD)/unity/$(1).cpp),$(call unity_text,$(1))),, \
                $(shell mkdir -p $(BUILD)/unity/$(dir $(1)))$(file >$(BUILD)/unity/$(1).cpp,$(call \
                unity_text,$(1))))
same        = $(and $(call in,$(1),$(2)),$(call in,$(2),$(1)))
in          = $(findstring $(strip $(1)),$(strip $(2)))
$(foreach u,$(UNITS),$(call write_unity,$(u)))
TEST_UNITS := $(filter tests/unit/test%,$(UNITS))
ROOM_UNITS := $(filter-out $(TEST_UNITS) fuzz/%,$(UNITS))
$(ROOM_UNITS:%=$(BUILD)/obj/%.o): $(BUILD)/obj/%.o: $(BUILD)/unity/%.cpp | $(GEN_HDRS)
	@mkdir -p $(@D)
	$(call say,CXX,$*)$(COMPILE) $<
# Files of tests may use the same names as others: each has a namespace in the unit. Less is
# optimized, since they run once.
$(TEST_UNITS:%=$(BUILD)/obj/%.o): scripts/test-unit
$(TEST_UNITS:%=$(BUILD)/obj/%.o): $(BUILD)/obj/%.o: $(BUILD)/unity/%.cpp | $(GEN_HDRS)
	@mkdir -p $(@D)
	$(call say,CXX,$*)scripts/test-unit $< > $(@:.o=.cpp) && \
	  $(CXX) $(CPPFLAGS) $(CXXFLAGS) $(if $(SAN),-O1,-Og) -MMD -MP -c -o $@ $(@:.o=.cpp)

$(BUILD)/obj/gen/%.o: $(BUILD)/gen/%.c
	@mkdir -p $(@D)
	$(call say,CC,$<)$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<

$(BUILD)/gen/%.pb-c.c $(BUILD)/gen/%.pb-c.h &: %.proto
	@mkdir -p $(@D)
	$(call say,PROTOC,$<)protoc-c --c_out=$(BUILD)/gen $<

# Every program's --version prints this text. The file is written anew only when the text has
# changed, so that nothing is compiled in vain.
GIT_VERSION  = $(shell git describe --always 2>/dev/null | sed 's/.*/ (&)/')
VERSION_TEXT = $(strip $(file <VERSION)$(GIT_VERSION))
$(BUILD)/gen/version.inc: FORCE
	@mkdir -p $(@D)
	@new=$@.$$$$; echo '#define SOUK_VERSION "$(VERSION_TEXT)"' > $$new; \
	  if cmp -s $$new $@; then rm $$new; else mv $$new $@; fi

# The files that souk-web sends unchanged become literals of the program.
$(BUILD)/gen/tools/web/%.inc: tools/web/%
	@mkdir -p $(@D)
	@{ printf 'R"souk_file('; cat $<; echo ')souk_file"'; } > $@

# CRIU's own RPC definition, from whichever CRIU `make deps` settled on.
RPC_PROTO := $(firstword $(wildcard $(CRIU_ROOT)/usr/include/criu/rpc.proto \
               /usr/include/criu/rpc.proto))
$(BUILD)/gen/checkpoint/rpc.pb-c.c $(BUILD)/gen/checkpoint/rpc.pb-c.h &: $(RPC_PROTO)
	@mkdir -p $(@D)
	$(call say,PROTOC,$<)protoc-c --proto_path=$(dir $<) --c_out=$(@D) $<

# Carried within agentd; loaded into CRIU, with whatever libraries that has.
PRELOAD_SRCS := $(wildcard checkpoint/criu_*.c)
$(BUILD)/gen/checkpoint/criu_preload.so.h: $(PRELOAD_SRCS) $(wildcard checkpoint/*.h) \
    $(wildcard kernel/sys/process/*.h)
	@mkdir -p $(@D)
	$(call say,CC,$(@F))$(CC) -std=gnu11 -O2 -Wall -Wextra -Werror -I. -fPIC -shared -s \
	  -Wl,-z,defs -o $(@:.h=) $(PRELOAD_SRCS)
	@{ echo 'static const unsigned char criu_preload_so[] = {'; \
	   od -An -v -tx1 $(@:.h=) | sed 's/ \(..\)/0x\1,/g'; echo '};'; } > $@

# Headers of the kernel's own ABI lie where this machine's compiler looks; -target bpf does not look
# there by itself.
$(BUILD)/gen/%.skel.h: %.bpf.c $(wildcard bpf/*.h kernel/sys/net/frame_gate.h)
	@mkdir -p $(@D)
	$(call say,BPF,$<)$(CLANG) -target bpf -D__TARGET_ARCH_$(BPF_ARCH) \
	  -O2 -g -Wall -Werror -I. -idirafter /usr/include/$(shell $(CXX) -dumpmachine) \
	  -c -o $(@:.skel.h=.bpf.o) $<
	$(call say,SKEL,$@)$(BPFTOOL) gen skeleton $(@:.skel.h=.bpf.o) name $(notdir $*)_bpf > $@

-include $(patsubst %.o,%.d,$(INIT_OBJS) $(SO_OBJS) $(LIB_OBJS) $(UNIT_OBJS) $(SIM_OBJS) \
           $(FUZZ_OBJS) $(FUZZERS:$(BUILD)/%=$(BUILD)/obj/fuzz/tests/%.o) \
           $(foreach r,$(SIDE_ROOMS),$(call room_objects,$(r)))) \
         $(BENCH_SRCS:%.cpp=$(BUILD)/obj/%.d) $(STUDY_OBJS:.o=.d) \
         $(foreach p,$(PROGRAMS),$(patsubst %.o,%.d,$(call PROG_OBJS,$(p))))
