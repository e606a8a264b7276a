import { defineConfig } from "vite";

// The command-line tool: a Node program; packages stay in node_modules.
export default defineConfig({
  build: {
    ssr: true,
    outDir: "dist",
    emptyOutDir: false,
    target: "node20",
    rollupOptions: { input: { report: "tool/report.ts" }, output: { entryFileNames: "[name].js" } },
  },
});
