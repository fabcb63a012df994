define dso_local i32 @branches(ptr noalias readonly %buffers, ptr noalias readonly %sizes, ptr readonly %scalars, i64 %begin, i64 %end, ptr noalias %fault) #0 {
entry:
  %v0 = getelementptr ptr, ptr %buffers, i64 0
  %v1 = load ptr, ptr %v0
  %v2 = getelementptr ptr, ptr %buffers, i64 1
  %v3 = load ptr, ptr %v2
  %v4 = getelementptr i64, ptr %scalars, i64 0
  %v5 = load i64, ptr %v4
  %v6 = icmp ne i64 %v5, 0
  br label %L7
L7:
  %v10 = phi i64 [ 0, %entry ], [ %v20, %L18 ]
  %v21 = icmp slt i64 %v10, 40
  br i1 %v21, label %L8, label %L9
L8:
  %v11 = icmp slt i64 %v10, 30
  br i1 %v11, label %L12, label %L13
L12:
  %v14 = getelementptr inbounds float, ptr %v1, i64 %v10
  %v15 = load float, ptr %v14, align 4
  br label %L13
L13:
  %v16 = phi float [ %v15, %L12 ], [ 0xBFF8000000000000, %L8 ]
  br i1 %v6, label %L17, label %L18
L17:
  %v19 = getelementptr inbounds float, ptr %v3, i64 %v10
  store float %v16, ptr %v19, align 4
  br label %L18
L18:
  %v20 = add nsw i64 %v10, 1
  br label %L7
L9:
  ret i32 0
}
attributes #0 = { nounwind "prefer-vector-width"="256" }
!0 = !{!"branch_weights", i32 1, i32 1000000}
