/* One I/O command by a kernel's pass-through, as a user of this number: what an ordinary user of the guest may do.
 *
 *   ngio USER DEVICE OPCODE NSID CDW2 CDW3 CDW10 CDW11 CDW12 BYTES < DATA > DATA
 *
 * The device is opened for reading and writing, which odd opcodes need and nvme-cli does not do. The result (dword 0)
 * goes to standard error. Ends with 1 where the kernel refuses, and with 2 where the drive does.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/nvme_ioctl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static unsigned char data[1 << 20] __attribute__((aligned(4096)));

int main(int argc, char **argv) {
  if (argc != 11) return 3;
  unsigned long word[11];
  for (int i = 3; i < 11; i++) word[i] = strtoul(argv[i], 0, 0);
  gid_t user = (gid_t)strtoul(argv[1], 0, 0);
  if (word[10] > sizeof data) return 3;
  if (user && (setgroups(0, 0) || setgid(user) || setuid(user))) return 3;
  int fd = open(argv[2], O_RDWR);
  if (fd < 0) return perror(argv[2]), 1;
  int sends = (int)word[3] & 1;
  if (sends && fread(data, 1, word[10], stdin) != word[10]) return 3;
  struct nvme_passthru_cmd command = {.opcode = (uint8_t)word[3], .nsid = (uint32_t)word[4], .cdw2 = (uint32_t)word[5]};
  command.cdw3 = (uint32_t)word[6];
  command.cdw10 = (uint32_t)word[7];
  command.cdw11 = (uint32_t)word[8];
  command.cdw12 = (uint32_t)word[9];
  command.addr = (uint64_t)(uintptr_t)data;
  command.data_len = (uint32_t)word[10];
  int status = ioctl(fd, NVME_IOCTL_IO_CMD, &command);
  if (status < 0) return fprintf(stderr, "%s\n", strerror(errno)), 1;
  if (status > 0) return fprintf(stderr, "status %#x\n", (unsigned)status), 2;
  fprintf(stderr, "result %u\n", command.result);
  if (!sends) fwrite(data, 1, word[10], stdout);
  return 0;
}
