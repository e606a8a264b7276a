import { defineConfig } from "vite";

// The command-line tools: Node programs; packages stay in node_modules.
export default defineConfig({
  build: {
    ssr: true,
    outDir: "dist",
    emptyOutDir: false,
    target: "node20",
    rollupOptions: {
      input: { media: "src/cli/media.ts", streams: "src/cli/streams.ts", live: "src/cli/live.ts", quality: "src/cli/quality.ts", pictures: "src/cli/pictures.ts", measure: "src/cli/measure.ts" },
      output: { entryFileNames: "[name].js", chunkFileNames: "shared/[name].js" },
    },
  },
});
