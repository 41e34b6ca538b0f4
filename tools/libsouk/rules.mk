# SPDX-License-Identifier: GPL-2.0-or-later
# libsouk.so: of srun and marketctl what another program needs; it shows souk.h alone.
SO_NUMBERS := $(shell sed -n 's/^.define SOUK_API_M[A-Z]* //p' tools/libsouk/souk.h)
SO_NAME   := libsouk.so.$(word 1,$(SO_NUMBERS))
SO        := $(BUILD)/lib/$(SO_NAME).$(word 2,$(SO_NUMBERS))
SO_SRCS   := $(wildcard tools/libsouk/*.cpp) tools/srun/spec.cpp kernel/sys/host/fd.cpp \
             $(patsubst %,tools/common/%.cpp,ask link paths remote talk) \
             $(wildcard $(addsuffix /*.cpp,kernel/trust kernel/sys/loop)) kernel/sys/net/socket.cpp \
             kernel/sys/store/sha256.cpp \
             $(wildcard $(patsubst %,kernel/base/%.cpp,units money json text ids result check \
               version)) \
             $(wildcard $(addsuffix /*.cpp,kernel/wire market/wire agentd/wire))
SO_OBJS   := $(SO_SRCS:%.cpp=$(BUILD)/obj-so/%.o) \
             $(patsubst %,$(BUILD)/obj-so/gen/%.pb-c.o,kernel/wire/wire market/wire/market \
               agentd/wire/agentd)
$(SO): $(SO_OBJS) tools/libsouk/souk.map
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CXX) $(LDFLAGS) -shared -Wl,-soname,$(SO_NAME) $(if $(SAN),,-Wl,-z,defs) \
	  -Wl,--version-script=tools/libsouk/souk.map -o $@ $(SO_OBJS) -lprotobuf-c -luring -lssl -lcrypto
	@ln -sf $(@F) $(@D)/$(SO_NAME) && ln -sf $(@F) $(@D)/libsouk.so

$(BUILD)/obj-so/%.o: %.cpp | $(GEN_HDRS)
	@mkdir -p $(@D)
	$(call say,CXX,$<)$(CXX) $(CPPFLAGS) $(CXXFLAGS) -fPIC -fvisibility=hidden -MMD -MP -c -o $@ $<
$(BUILD)/obj-so/gen/%.o: $(BUILD)/gen/%.c
	@mkdir -p $(@D)
	$(call say,CC,$<)$(CC) $(CPPFLAGS) $(CFLAGS) -fPIC -fvisibility=hidden -MMD -MP -c -o $@ $<
bins: $(SO)
